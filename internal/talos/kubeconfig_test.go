package talos_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/talos"
)

// archive packs one file; finish is what Talos leaves out: the tar's padding and trailer.
func archive(t testing.TB, name, content string, finish bool) []byte {
	t.Helper()

	var packed bytes.Buffer

	zipped := gzip.NewWriter(&packed)
	files := tar.NewWriter(zipped)

	require.NoError(t, files.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)),
		Mode: 0o600}))

	_, err := files.Write([]byte(content))
	require.NoError(t, err)

	if finish {
		require.NoError(t, files.Close())
	}

	require.NoError(t, zipped.Close())

	return packed.Bytes()
}

func TestKubeconfigComesOutOfAnUnfinishedArchive(t *testing.T) {
	t.Parallel()

	for name, finish := range map[string]bool{"finished": true, "unfinished": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			kubeconfig, err := talos.UnpackKubeconfig(archive(t, "kubeconfig", "apiVersion: v1\n", finish))
			require.NoError(t, err)
			require.Equal(t, "apiVersion: v1\n", string(kubeconfig))
		})
	}
}

func TestABrokenKubeconfigArchiveIsNoKubeconfig(t *testing.T) {
	t.Parallel()

	whole := archive(t, "kubeconfig", "apiVersion: v1\n", true)

	for name, test := range map[string]struct {
		archive []byte
		says    string
	}{
		"empty":     {nil, "no kubeconfig"},
		"no gzip":   {[]byte("apiVersion: v1"), "unpack"},
		"cut short": {whole[:len(whole)/2], "unpack"},
		"no file":   {archive(t, "something", "else", true), "without a kubeconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, err := talos.UnpackKubeconfig(test.archive)
			require.ErrorContains(t, err, test.says)
		})
	}
}
