package machineconfig

// Mask returns the YAML documents without comments and with every secret replaced by Masked. Public certificates are
// shown as fingerprints. Of text that is not YAML nothing is shown.
func Mask(data []byte) []byte {
	masked, err := maskWith(data, func(string) string { return Masked })
	if err != nil {
		return []byte(unreadable)
	}

	return masked
}
