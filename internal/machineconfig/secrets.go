package machineconfig

import (
	"bytes"

	"github.com/siderolabs/crypto/x509"
)

// What a config holds of the cluster's secrets, in whichever form. Fields are called by their older names, by which
// people know them; where they stand is for whoever tells of them.

// Authority is a certificate authority; the key is only with those that sign.
type Authority struct {
	// Field is its name.
	Field string
	*x509.PEMEncodedCertificateAndKey
}

// Authorities are those that the config has.
func (c *Config) Authorities() []Authority {
	var list []Authority

	add := func(field string, pair *x509.PEMEncodedCertificateAndKey) {
		if pair != nil {
			list = append(list, Authority{field, pair})
		}
	}

	add("machine.ca", c.raw.MachineConfig.MachineCA)
	add("cluster.ca", c.kubernetesAuthority())

	if aggregator := c.Provider.K8sAggregatorCAConfig(); aggregator != nil {
		add("cluster.aggregatorCA", aggregator.IssuingCA())
	}

	add("cluster.etcd.ca", c.Etcd().CA())

	return list
}

// kubernetesAuthority is the one that signs, or its certificate alone; nil if the config has neither.
func (c *Config) kubernetesAuthority() *x509.PEMEncodedCertificateAndKey {
	declared := c.Provider.K8sAPIServerCAConfig()
	if declared == nil {
		return nil
	}

	if issuing := declared.IssuingCA(); issuing != nil {
		return issuing
	}

	for _, accepted := range declared.AcceptedCAs() {
		return &x509.PEMEncodedCertificateAndKey{Crt: accepted.Crt} // the first is the one that signs
	}

	return nil
}

// KubernetesCA is the certificate that signs the cluster's Kubernetes certificates; nil if the config has none.
func (c *Config) KubernetesCA() []byte {
	if authority := c.kubernetesAuthority(); authority != nil {
		return bytes.Clone(authority.Crt)
	}

	return nil
}

// MachineToken is what nodes show to each other's trustd.
func (c *Config) MachineToken() string { return c.raw.MachineConfig.MachineToken }

// BootstrapToken is what kubelets join with.
func (c *Config) BootstrapToken() string { return c.raw.ClusterConfig.BootstrapToken }

// ClusterSecret is what members of the cluster encrypt their discovery with.
func (c *Config) ClusterSecret() string {
	if identity := c.Provider.DiscoveryIdentityConfig(); identity != nil {
		return identity.ClusterSecret()
	}

	return ""
}

// ClusterID is what the discovery service knows the cluster by.
func (c *Config) ClusterID() string {
	if identity := c.Provider.DiscoveryIdentityConfig(); identity != nil {
		return identity.ClusterID()
	}

	return ""
}

// ServiceAccountKey is the private key that signs the tokens of service accounts; nil on workers.
func (c *Config) ServiceAccountKey() []byte {
	if account := c.raw.ClusterConfig.ClusterServiceAccount; account != nil { // without an endpoint Talos does not use it
		return account.Key
	}

	if account := c.Provider.K8sServiceAccountConfig(); account != nil {
		return account.IssuingKey().Key
	}

	return nil
}

// Kinds of encryption of what etcd holds.
const (
	secretbox = "secretbox"
	aescbc    = "aescbc"
)

// SecretboxSecret encrypts what etcd holds; empty if that does.
func (c *Config) SecretboxSecret() string {
	if secret := c.raw.ClusterConfig.ClusterSecretboxEncryptionSecret; secret != "" {
		return secret
	}

	return c.encryptionSecret(secretbox)
}

// AESCBCSecret encrypts what etcd holds, in clusters from before Talos 1.3.
func (c *Config) AESCBCSecret() string {
	if secret := c.raw.ClusterConfig.ClusterAESCBCEncryptionSecret; secret != "" {
		return secret
	}

	return c.encryptionSecret(aescbc)
}

// encryptionSecret is the first key of a provider in a KubeEtcdEncryptionConfig; empty if there is none. The document
// holds Kubernetes' own EncryptionConfiguration.
func (c *Config) encryptionSecret(provider string) string {
	declared := c.Provider.K8sEtcdEncryptionConfig()
	if declared == nil {
		return ""
	}

	for _, resource := range items(declared.EtcdEncryptionConfig(), "resources") {
		for _, listed := range items(resource, "providers") {
			settings, _ := listed[provider].(map[string]any)

			for _, key := range items(settings, "keys") {
				if secret, ok := key["secret"].(string); ok {
					return secret
				}
			}
		}
	}

	return ""
}

// items are the mappings in a list of a mapping.
func items(of map[string]any, key string) []map[string]any {
	list, _ := of[key].([]any)

	var mappings []map[string]any

	for _, item := range list {
		if mapping, ok := item.(map[string]any); ok {
			mappings = append(mappings, mapping)
		}
	}

	return mappings
}
