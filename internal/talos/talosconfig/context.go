package talosconfig

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/yamltree"
)

// Trusts reports whether a context takes what a certificate authority signs: by its key, since an authority's
// certificate may be renewed.
func Trusts(context *clientconfig.Context, authority *x509.Certificate) bool {
	return context != nil && slices.ContainsFunc(certificates(context.CA), func(trusted *x509.Certificate) bool {
		return bytes.Equal(trusted.RawSubjectPublicKeyInfo, authority.RawSubjectPublicKeyInfo)
	})
}

// ClientCertificate is the one that a context shows nodes; nil if it has none that can be read.
func ClientCertificate(context *clientconfig.Context) *x509.Certificate {
	if found := certificates(context.Crt); len(found) > 0 {
		return found[0]
	}

	return nil
}

// certificates are those in base64 of a PEM text, as far as they can be read.
func certificates(encoded string) []*x509.Certificate {
	rest, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil
	}

	var found []*x509.Certificate

	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return found
		}

		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil {
			found = append(found, certificate)
		}
	}
}

// ReplaceClient gives one context of a talosconfig's text another client certificate and key, both PEM. All else in the
// text stays as it is. Errors never quote it.
func ReplaceClient(data []byte, context string, certificate, key []byte) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil || len(document.Content) != 1 {
		return nil, errors.New("the YAML could not be read")
	}

	fields := yamltree.Referred(yamltree.Field(yamltree.Field(document.Content[0], "contexts"), context))
	lines := strings.SplitAfter(string(data), "\n")

	for name, value := range map[string][]byte{"crt": certificate, "key": key} {
		node := yamltree.Referred(yamltree.Field(fields, name))
		if node == nil || node.Value == "" || node.Line > len(lines) ||
			strings.Count(lines[node.Line-1], node.Value) != 1 {
			return nil, fmt.Errorf("%s of context %q has no line of its own", name, context)
		}

		lines[node.Line-1] = strings.Replace(lines[node.Line-1], node.Value, base64.StdEncoding.EncodeToString(value), 1)
	}

	return []byte(strings.Join(lines, "")), nil
}
