package secrets

import (
	"crypto/tls"
	"encoding/base64"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/secrettext"
	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// document is the file. All values are needed, but for one of the two encryption secrets. Its keys are those that
// machinery's Bundle has in YAML; in JSON, as Terraform's provider gives it, they are the same in mixed case.
type document struct {
	Cluster struct {
		ID     string `yaml:"id"`
		Secret string `yaml:"secret"`
	} `yaml:"cluster"`
	Secrets struct {
		BootstrapToken            string `yaml:"bootstraptoken"`
		AESCBCEncryptionSecret    string `yaml:"aescbcencryptionsecret"`
		SecretboxEncryptionSecret string `yaml:"secretboxencryptionsecret"`
	} `yaml:"secrets"`
	TrustdInfo struct {
		Token string `yaml:"token"`
	} `yaml:"trustdinfo"`
	Certs struct {
		Etcd              pair `yaml:"etcd"`
		K8s               pair `yaml:"k8s"`
		K8sAggregator     pair `yaml:"k8saggregator"`
		K8sServiceAccount struct {
			Key string `yaml:"key"`
		} `yaml:"k8sserviceaccount"`
		OS pair `yaml:"os"`
	} `yaml:"certs"`
}

// pair is a certificate authority, both parts as base64 of PEM.
type pair struct {
	Crt string `yaml:"crt"`
	Key string `yaml:"key"`
}

// required are the paths of values that every bundle has.
var required = []string{
	"cluster.id", "cluster.secret", "secrets.bootstraptoken", "trustdinfo.token",
	"certs.etcd.crt", "certs.etcd.key", "certs.k8s.crt", "certs.k8s.key", "certs.k8saggregator.crt",
	"certs.k8saggregator.key",
	"certs.k8sserviceaccount.key", "certs.os.crt", "certs.os.key",
}

// Decode reads the plain text of a bundle. Variables in its values are replaced, as talhelper does. The error lists
// every mistake with its place, never with a value: it is that of yamlfile.Mistakes. Certificates of the bundle's own
// are valid from now on.
func Decode(shown string, data []byte, variables talconfig.Variables, now time.Time) (*secrets.Bundle, error) {
	reader := reader{Source: yamlfile.Source{Shown: shown, Mistakes: &yamlfile.Mistakes{}}}

	root := reader.Parse(data)
	if root == nil && len(reader.List) == 0 {
		mistake := reader.Mistake(nil, diagnosis.FileMissing, "the secrets file is empty")
		mistake.Next = "restore it from your backup or from git"
		reader.Add(mistake)
	}

	if root != nil {
		reader.root = root
		lowerKeys(root)
		variables.Substitute(reader.Source, root)
		reader.Check("the file", root, reflect.TypeFor[document]())
	}

	if err := reader.Err(); err != nil {
		return nil, err
	}

	bundle := reader.bundle()
	bundle.Clock = secrets.NewFixedClock(now)

	if err := reader.Err(); err != nil {
		return nil, err
	}

	return bundle, nil
}

// DecodePlain is Decode for a bundle without variables.
func DecodePlain(shown string, data []byte, now time.Time) (*secrets.Bundle, error) {
	return Decode(shown, data, talconfig.Variables{Lookup: func(string) (string, bool) { return "", false }}, now)
}

// lowerKeys takes the mixed case of the JSON form out of the keys.
func lowerKeys(node *yaml.Node) {
	for i, child := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 0 {
			child.Value = strings.ToLower(child.Value)
		}

		lowerKeys(child)
	}
}

// reader turns a tree into a bundle.
type reader struct {
	yamlfile.Source

	root *yaml.Node
}

// value is what stands at a path, and the node to point at: the value's, or the nearest mapping's above it.
func (r reader) value(path string) (string, *yaml.Node) {
	node := r.root

	for key := range strings.SplitSeq(path, ".") {
		next := yamlfile.Field(node, key)
		if next == nil {
			return "", node
		}

		node = next
	}

	if node.Kind != yaml.ScalarNode || node.Tag == "!!null" {
		return "", node
	}

	return strings.TrimSpace(node.Value), node
}

// text is the value at a path; one that is missing is a mistake.
func (r reader) text(path string) string {
	value, node := r.value(path)
	if value == "" {
		r.At(node, diagnosis.FileValue, "%q is needed", path)
	}

	return value
}

func (r reader) bundle() *secrets.Bundle {
	before := len(r.List)

	for _, path := range required {
		r.text(path)
	}

	secretbox, _ := r.value("secrets.secretboxencryptionsecret")
	aescbc, _ := r.value("secrets.aescbcencryptionsecret")

	if secretbox == "" && aescbc == "" {
		_, node := r.value("secrets.secretboxencryptionsecret")
		r.At(node, diagnosis.FileValue,
			"one of \"secrets.secretboxencryptionsecret\" and, before Talos 1.3, \"secrets.aescbcencryptionsecret\" is needed")
	}

	if len(r.List) > before {
		return &secrets.Bundle{}
	}

	if _, node := r.value("secrets.bootstraptoken"); !secrettext.IsBootstrapToken(strings.TrimSpace(node.Value)) {
		r.At(node, diagnosis.FileValue,
			"\"secrets.bootstraptoken\" is no bootstrap token: six letters or digits, a dot, and sixteen more")
	}

	return &secrets.Bundle{
		Cluster: &secrets.Cluster{ID: r.text("cluster.id"), Secret: r.text("cluster.secret")},
		Secrets: &secrets.Secrets{
			BootstrapToken:            r.text("secrets.bootstraptoken"),
			AESCBCEncryptionSecret:    aescbc,
			SecretboxEncryptionSecret: secretbox,
		},
		TrustdInfo: &secrets.TrustdInfo{Token: r.text("trustdinfo.token")},
		Certs: &secrets.Certs{
			Etcd:              r.authority("certs.etcd"),
			K8s:               r.authority("certs.k8s"),
			K8sAggregator:     r.authority("certs.k8saggregator"),
			K8sServiceAccount: r.serviceAccount("certs.k8sserviceaccount.key"),
			OS:                r.authority("certs.os"),
		},
	}
}

// authority is the certificate authority at a path, of which both parts have to fit together.
func (r reader) authority(path string) *x509.PEMEncodedCertificateAndKey {
	crt, key := r.pem(path+".crt"), r.pem(path+".key")
	if crt == nil || key == nil {
		return nil
	}

	if _, err := tls.X509KeyPair(crt, key); err != nil {
		_, node := r.value(path + ".crt")
		r.At(node, diagnosis.FileValue,
			"%q is no certificate with the key beside it: one of them is damaged, or they are of two bundles", path)
	}

	return &x509.PEMEncodedCertificateAndKey{Crt: crt, Key: key}
}

func (r reader) serviceAccount(path string) *x509.PEMEncodedKey {
	text := r.pem(path)
	if text == nil {
		return nil
	}

	key := &x509.PEMEncodedKey{Key: text}
	if _, err := key.GetKey(); err != nil {
		_, node := r.value(path)
		r.At(node, diagnosis.FileValue, "%q holds no private key", path)
	}

	return key
}

// pem decodes the value at a path.
func (r reader) pem(path string) []byte {
	value, node := r.value(path)

	text, err := base64.StdEncoding.DecodeString(value)
	if err != nil || !strings.Contains(string(text), "-----BEGIN ") {
		r.At(node, diagnosis.FileValue, "%s must be base64 of a PEM text%s", strconv.Quote(path), instead(value))

		return nil
	}

	return text
}

// instead names what stands where a secret should be, if that is known; never the value.
func instead(value string) string {
	switch {
	case strings.HasPrefix(value, "ENC["):
		return ": it is still encrypted, though the file has no `sops` part that says how"
	case value == x509.Redacted:
		return ": it was blacked out"
	case strings.HasPrefix(value, "op://"), strings.HasPrefix(value, "ref+"):
		return ": it is a password manager's reference"
	default:
		return ""
	}
}
