package secrets

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"

	"github.com/talos-mage/talos-mage/internal/check"

	pki "github.com/siderolabs/crypto/x509"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// kubeconfigCheck judges the kubeconfig.
func kubeconfigCheck() check.Check {
	return check.Whole(diagnosis.KubeconfigOutOfDate, check.Secrets, diagnosis.NeedsConfig, checkKubeconfigDates).
		OfSecrets().
		IdleIf(func(in *check.Input) string {
			if in.KubeconfigFile == nil {
				return "there is no kubeconfig"
			}

			return ""
		})
}

// checkKubeconfigDates looks at the certificates of users of this cluster, which is known by its authority: other
// clusters' are none of its business.
func checkKubeconfigDates(r *check.Report, in *check.Input) {
	if in.KubeconfigFile == nil {
		return
	}

	users := usersOfCluster(in)

	for i, entry := range items(kubeconfig(in, "users")) {
		name := text(entry, "name")

		data, err := base64.StdEncoding.DecodeString(text(machineconfig.Field(entry, "user"), "client-certificate-data"))
		if err != nil || !slices.Contains(users, name) {
			continue
		}

		certificate, err := (&pki.PEMEncodedCertificateAndKey{Crt: data}).GetCert()
		if err != nil {
			continue
		}

		when, text := judgeDates(in, certificate.NotBefore, certificate.NotAfter)
		if when == good {
			continue
		}

		next := "mage kubeconfig"
		if when == notYet {
			next = "set this computer's clock"
		}

		r.Found(in.KubeconfigFile.At(fmt.Sprintf("users[%d].user.client-certificate-data", i)), next,
			"the certificate of %s %s", name, text)
	}
}

// usersOfCluster are the users of the contexts whose cluster has the machine configs' Kubernetes CA.
func usersOfCluster(in *check.Input) []string {
	var clusters, users []string

	for _, entry := range items(kubeconfig(in, "clusters")) {
		ca, err := base64.StdEncoding.DecodeString(text(machineconfig.Field(entry, "cluster"), "certificate-authority-data"))
		ours := func(config *check.Rendered) bool {
			return bytes.Equal(bytes.TrimSpace(config.KubernetesCA()), bytes.TrimSpace(ca))
		}

		if err == nil && len(ca) > 0 && slices.ContainsFunc(in.Configs, ours) {
			clusters = append(clusters, text(entry, "name"))
		}
	}

	for _, entry := range items(kubeconfig(in, "contexts")) {
		if context := machineconfig.Field(entry, "context"); slices.Contains(clusters, text(context, "cluster")) {
			users = append(users, text(context, "user"))
		}
	}

	return users
}

// kubeconfig is one of its lists; nil if there is none.
func kubeconfig(in *check.Input, list string) *yaml.Node {
	for _, root := range in.KubeconfigFile.Places.Roots() {
		return machineconfig.Field(root, list)
	}

	return nil
}

// items are those of a list; none of anything else.
func items(list *yaml.Node) []*yaml.Node {
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil
	}

	return list.Content
}

// text is the value of a mapping's key; empty if there is none.
func text(mapping *yaml.Node, key string) string {
	if value := machineconfig.Field(mapping, key); value != nil && value.Kind == yaml.ScalarNode {
		return value.Value
	}

	return ""
}
