package emulator_test

import (
	stdx509 "crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// kubeconfig is what a test looks at in one.
type kubeconfig struct {
	CurrentContext string `yaml:"current-context"`
	Clusters       []struct {
		Name    string
		Cluster struct{ Server string }
	}
	Users []struct {
		Name string
		User struct {
			Certificate string `yaml:"client-certificate-data"`
		}
	}
	Contexts []struct {
		Name    string
		Context struct{ Cluster, Namespace, User string }
	}
}

// administrator is a node's kubeconfig, with the certificate in it.
func administrator(t *testing.T, c *client.Client) (kubeconfig, *stdx509.Certificate) {
	t.Helper()

	data, err := c.Kubeconfig(deadline(t))
	require.NoError(t, err)

	var config kubeconfig

	require.NoError(t, yaml.Unmarshal(data, &config))
	require.Len(t, config.Users, 1)

	encoded, err := base64.StdEncoding.DecodeString(config.Users[0].User.Certificate)
	require.NoError(t, err)

	block, _ := pem.Decode(encoded)
	certificate, err := stdx509.ParseCertificate(block.Bytes)
	require.NoError(t, err)

	return config, certificate
}

func TestClaim_5_03_EachKubeconfigHasACertificateOfItsOwn(t *testing.T) {
	t.Parallel()

	cluster, node := waiting(t)
	c := secure(t, cluster.Talosconfig(), node)

	config, first := administrator(t, c)
	_, second := administrator(t, c)

	require.Equal(t, "admin@lab", config.CurrentContext)
	require.Equal(t, "lab", config.Clusters[0].Name)
	require.Equal(t, "https://"+cluster.VIP.String()+":6443", config.Clusters[0].Cluster.Server)
	require.Equal(t, "admin@lab", config.Users[0].Name)
	require.Equal(t, "admin@lab", config.Contexts[0].Name)
	require.Equal(t, "lab", config.Contexts[0].Context.Cluster)
	require.Equal(t, "default", config.Contexts[0].Context.Namespace)
	require.Equal(t, "admin@lab", config.Contexts[0].Context.User)

	require.NotEqual(t, first.SerialNumber, second.SerialNumber)
	require.Equal(t, "admin", first.Subject.CommonName)
	require.Equal(t, []string{"system:masters"}, first.Subject.Organization)
	require.WithinDuration(t, first.NotBefore.AddDate(1, 0, 0), first.NotAfter, 48*time.Hour)

	frames := 0

	stream, err := c.MachineClient.Kubeconfig(deadline(t), &emptypb.Empty{})
	require.NoError(t, err)

	for {
		_, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}

		require.NoError(t, err)

		frames++
	}

	require.Equal(t, 1, frames)
}

func TestClaim_5_04_TheKubeconfigsCertificateLivesAsLongAsTheConfigSays(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, labcluster.Options{Edit: func(o *emulator.NodeOptions) { o.Installed = true }})
	_, err := apply(t, insecure(t, node), edited(t, cluster, "cp1", func(c *v1alpha1.Config) {
		c.ClusterConfig.AdminKubeconfigConfig = &v1alpha1.AdminKubeconfigConfig{AdminKubeconfigCertLifetime: 3 * time.Hour}
	}), modeAuto)
	require.NoError(t, err)

	c := secure(t, cluster.Talosconfig(), node)
	eventually(t, func() error { _, err := c.Version(deadline(t)); return err })

	_, certificate := administrator(t, c)
	require.WithinDuration(t, time.Now().Add(3*time.Hour), certificate.NotAfter, 5*time.Minute)
}

func TestClaim_5_05_WhyThereIsNoKubeconfigIsReadFromTheStream(t *testing.T) {
	t.Parallel()

	cluster := wholeLab.use(t)
	c := secure(t, cluster.Talosconfig(), cluster.Node("worker1"))

	stream, err := c.MachineClient.Kubeconfig(deadline(t), &emptypb.Empty{})
	require.NoError(t, err, "the call itself works")

	_, err = stream.Recv()
	requireStatus(t, err, codes.Unimplemented, "kubeconfig is only available on control plane nodes")

	_, err = c.Kubeconfig(deadline(t))
	requireStatus(t, err, codes.Unimplemented, "kubeconfig is only available on control plane nodes")
}
