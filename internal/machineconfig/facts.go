package machineconfig

import (
	"bytes"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
)

// Role is the machine type; a config that names none is a worker's, as Talos reads it.
func (c *Config) Role() machine.Type { return c.Provider.Machine().Type() }

// Hostname is the static hostname, of the HostnameConfig document or the old field; empty when the node gets it
// elsewhere.
func (c *Config) Hostname() string {
	if hostname := c.Provider.NetworkHostnameConfig(); hostname != nil {
		return hostname.Hostname()
	}

	return ""
}

// CA is the PEM certificate of the Talos API's CA: the issuing one, else the first accepted. Nil if there is none.
func (c *Config) CA() []byte {
	if issuing := c.raw.MachineConfig.MachineCA; issuing != nil && len(issuing.Crt) > 0 {
		return bytes.Clone(issuing.Crt)
	}

	if accepted := c.AcceptedCAs(); len(accepted) > 0 {
		return accepted[0]
	}

	return nil
}

// AcceptedCAs are the PEM certificates of machine.acceptedCAs.
func (c *Config) AcceptedCAs() [][]byte {
	var certificates [][]byte

	for _, accepted := range c.raw.MachineConfig.MachineAcceptedCAs {
		if accepted != nil {
			certificates = append(certificates, bytes.Clone(accepted.Crt))
		}
	}

	return certificates
}

// Trusts reports whether a node with this config accepts certificates of a CA, which is PEM: its own, or one of
// machine.acceptedCAs.
func (c *Config) Trusts(ca []byte) bool {
	accepts := func(accepted []byte) bool { return bytes.Equal(bytes.TrimSpace(accepted), bytes.TrimSpace(ca)) }

	return accepts(c.CA()) || slices.ContainsFunc(c.AcceptedCAs(), accepts)
}

// KubernetesCA is the PEM certificate of the Kubernetes CA; nil if there is none.
func (c *Config) KubernetesCA() []byte {
	if issuing := c.raw.ClusterConfig.ClusterCA; issuing != nil {
		return bytes.Clone(issuing.Crt)
	}

	return nil
}

// ClusterID is the cluster's public id; empty in configs without discovery.
func (c *Config) ClusterID() string { return c.raw.ClusterConfig.ClusterID }

// ClusterName is the cluster's name; workers of old Talos versions have none.
func (c *Config) ClusterName() string { return c.raw.ClusterConfig.ClusterName }

// Endpoint is the Kubernetes API's URL; nil if there is none.
func (c *Config) Endpoint() *url.URL {
	controlPlane := c.raw.ClusterConfig.ControlPlane
	if controlPlane == nil || controlPlane.Endpoint == nil {
		return nil
	}

	return controlPlane.Endpoint.URL
}

// SharedSecrets are what all machine configs of a cluster have in common. Two of them are equal, as Go compares values,
// if no field differs.
type SharedSecrets struct {
	machineCA, machineToken, clusterID, clusterSecret, clusterToken, clusterCA string
}

// SharedSecrets are those of this config; workers lack some.
func (c *Config) SharedSecrets() SharedSecrets {
	return SharedSecrets{
		machineCA:     string(c.CA()),
		machineToken:  c.raw.MachineConfig.MachineToken,
		clusterID:     c.ClusterID(),
		clusterSecret: c.raw.ClusterConfig.ClusterSecret,
		clusterToken:  c.raw.ClusterConfig.BootstrapToken,
		clusterCA:     string(c.KubernetesCA()),
	}
}

// values are in the order of SharedSecretFields.
func (s SharedSecrets) values() []string {
	return []string{s.machineCA, s.machineToken, s.clusterID, s.clusterSecret, s.clusterToken, s.clusterCA}
}

// SharedSecretFields are the fields by the names that Differing gives them.
func SharedSecretFields() []string {
	return []string{"machine.ca", "machine.token", "cluster.id", "cluster.secret", "cluster.token", "cluster.ca"}
}

// Differing names the fields that two configs don't have in common: files of one generation have none. A field that one
// of them lacks is not compared.
func (s SharedSecrets) Differing(other SharedSecrets) []string {
	var different []string

	theirs := other.values()

	for i, mine := range s.values() {
		if mine != "" && theirs[i] != "" && mine != theirs[i] {
			different = append(different, SharedSecretFields()[i])
		}
	}

	return different
}

// CertSANs are the extra names in the certificate of the node's API.
func (c *Config) CertSANs() []string { return slices.Clone(c.raw.MachineConfig.MachineCertSANs) }

// PodSubnets are the cluster's, or Talos' default.
func (c *Config) PodSubnets() []netip.Prefix {
	return c.Network().PodCIDRs()
}

// ServiceSubnets are the cluster's, or Talos' default.
func (c *Config) ServiceSubnets() []netip.Prefix {
	return c.Network().ServiceCIDRs()
}

// NodeIPSubnets are kubelet's filter of node addresses; empty means that all are good. Entries that exclude ("!…") are
// left out.
func (c *Config) NodeIPSubnets() []netip.Prefix {
	return parsePrefixes(c.Node().NodeIP().ValidSubnets())
}

func parsePrefixes(texts []string) []netip.Prefix {
	var prefixes []netip.Prefix

	for _, text := range texts {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			prefixes = append(prefixes, prefix)
		}
	}

	return prefixes
}

// InstallImage is the installer image with its tag; empty when Talos picks it.
func (c *Config) InstallImage() string {
	if c.raw.MachineConfig.MachineInstall == nil {
		return ""
	}

	return c.raw.MachineConfig.MachineInstall.InstallImage
}

// SecureBootImage reports whether the installer image is made for SecureBoot: its name ends with "-secureboot".
func (c *Config) SecureBootImage() bool { return IsSecureBootImage(c.InstallImage()) }

// IsSecureBootImage reports whether an image reference, as in factory.talos.dev/metal-installer-secureboot/<id>:v1.13.9
// or ghcr.io/…/installer-secureboot:v1.13.9, is a SecureBoot installer.
func IsSecureBootImage(image string) bool {
	for part := range strings.SplitSeq(image, "/") {
		name, _, _ := strings.Cut(part, ":")
		name, _, _ = strings.Cut(name, "@")

		if strings.HasSuffix(name, "-secureboot") {
			return true
		}
	}

	return false
}

// ExtraKernelArgs are the kernel arguments of the install section.
func (c *Config) ExtraKernelArgs() []string {
	if c.raw.MachineConfig.MachineInstall == nil {
		return nil
	}

	//nolint:staticcheck // old files have them, and Talos obeys them with GRUB
	return slices.Clone(c.raw.MachineConfig.MachineInstall.InstallExtraKernelArgs)
}

// HasTPMKeys reports whether a volume is encrypted with a key that the TPM holds.
func (c *Config) HasTPMKeys() bool {
	if encryption := c.raw.MachineConfig.MachineSystemDiskEncryption; encryption != nil { //nolint:staticcheck // old files have it
		for _, partition := range []*v1alpha1.EncryptionConfig{encryption.StatePartition, encryption.EphemeralPartition} {
			if partition == nil {
				continue
			}

			for _, key := range partition.EncryptionKeys {
				if key != nil && key.KeyTPM != nil {
					return true
				}
			}
		}
	}

	return slices.ContainsFunc(c.volumeEncryptions(), func(volume encryptedVolume) bool { return hasTPMKey(volume) })
}

// InstallerVersion is the tag of the installer image, as in "v1.13.9"; empty if it has none.
func (c *Config) InstallerVersion() string {
	image, _, _ := strings.Cut(c.InstallImage(), "@")
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")

	return tag
}
