package labcluster

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"github.com/talos-mage/talos-mage/internal/machineconfig/quicksecrets"
)

// A process makes two and no more: what clusters need of their own is put into a copy.
var (
	ours    = sync.OnceValues(quicksecrets.New)
	foreign = sync.OnceValues(quicksecrets.New)
)

// Secrets is the bundle of a new cluster: its CAs are those of every cluster of this process, its id, secret and token
// are its own.
func Secrets() (*secrets.Bundle, error) { return newCluster(ours) }

// ForeignSecrets is the same with CAs that no cluster made with Secrets trusts.
func ForeignSecrets() (*secrets.Bundle, error) { return newCluster(foreign) }

func newCluster(source func() (*secrets.Bundle, error)) (*secrets.Bundle, error) {
	shared, err := source()
	if err != nil {
		return nil, err
	}

	bundle := *shared
	cluster, trust, kubernetes := *shared.Cluster, *shared.TrustdInfo, *shared.Secrets

	cluster.ID = randomBase64()
	cluster.Secret = randomBase64()
	trust.Token = randomToken()
	kubernetes.BootstrapToken = randomToken()
	bundle.Cluster, bundle.TrustdInfo, bundle.Secrets = &cluster, &trust, &kubernetes

	return &bundle, nil
}

func randomBase64() string {
	raw := make([]byte, 32)
	rand.Read(raw) //nolint:errcheck // never fails

	return base64.StdEncoding.EncodeToString(raw)
}

// randomToken has the form of Talos' and Kubernetes' tokens: six characters, a dot, sixteen characters.
func randomToken() string {
	text := strings.ToLower(rand.Text())

	return fmt.Sprintf("%s.%s", text[:6], text[6:22])
}
