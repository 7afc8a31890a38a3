package machineconfig

import (
	"bytes"
	"net/url"
	"slices"

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

// ClusterName is the cluster's name; workers of old Talos versions have none.
func (c *Config) ClusterName() string {
	if cluster := c.Provider.K8sClusterConfig(); cluster != nil {
		return cluster.ClusterName()
	}

	return c.raw.ClusterConfig.ClusterName // one without an endpoint
}

// Endpoint is the Kubernetes API's URL; nil if there is none.
func (c *Config) Endpoint() *url.URL {
	if cluster := c.Provider.K8sClusterConfig(); cluster != nil {
		return cluster.ClusterEndpoint()
	}

	return nil
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
		machineToken:  c.MachineToken(),
		clusterID:     c.ClusterID(),
		clusterSecret: c.ClusterSecret(),
		clusterToken:  c.BootstrapToken(),
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
