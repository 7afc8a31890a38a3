package clusterfiles

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	clustersecrets "github.com/talos-mage/talos-mage/internal/cluster/secrets"
)

// A process makes two bundles and no more: what clusters need of their own is put into a copy.
var (
	ours    = sync.OnceValues(NewSecrets)
	foreign = sync.OnceValues(NewSecrets)
)

// lastWithoutRSA is a release whose clusters sign service accounts with an elliptic curve; since then it is an RSA key
// of 4096 bits, which takes a processor seconds to find (siderolabs/talos, pkg/machinery/config/contract.go).
const lastWithoutRSA = "v1.6.0"

// NewSecrets is a bundle of its own, CAs included, of a cluster that was born with a release that needs no RSA key.
// Nothing else in it differs from a new cluster's.
func NewSecrets() (*secrets.Bundle, error) { return clustersecrets.New(lastWithoutRSA) }

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
