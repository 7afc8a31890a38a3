package talos

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/types/known/emptypb"
)

// maxKubeconfig bounds what is read of a kubeconfig; real ones have a few kilobytes.
const maxKubeconfig = 1 << 20

// Kubeconfig has a control plane make an admin kubeconfig, good for a year by default. It works before Bootstrap and
// says nothing about the Kubernetes API.
func (c *Conn) Kubeconfig(ctx context.Context) ([]byte, error) {
	var kubeconfig []byte

	err := c.read(ctx, OpKubeconfig, func(ctx context.Context) error {
		archive, err := c.kubeconfigArchive(ctx)
		if err != nil {
			return err
		}

		kubeconfig, err = unpackKubeconfig(archive)
		return err
	})

	return kubeconfig, err
}

// kubeconfigArchive reads the stream itself: machinery's reader turns a deadline into the end of the file.
func (c *Conn) kubeconfigArchive(ctx context.Context) ([]byte, error) {
	stream, err := c.api.MachineClient.Kubeconfig(ctx, &emptypb.Empty{})
	if err != nil {
		return nil, err
	}

	var archive bytes.Buffer
	for {
		data, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return archive.Bytes(), nil
		}

		if err != nil {
			return nil, err
		}

		if archive.Len()+len(data.GetBytes()) > maxKubeconfig {
			return nil, fmt.Errorf("the kubeconfig is larger than %d bytes", maxKubeconfig)
		}

		archive.Write(data.GetBytes())
	}
}

// unpackKubeconfig takes the file out of the .tar.gz, which Talos never finishes: neither padding nor trailer need be
// there.
func unpackKubeconfig(archive []byte) ([]byte, error) {
	if len(archive) == 0 {
		return nil, errors.New("the node sent no kubeconfig")
	}

	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, fmt.Errorf("unpack kubeconfig: %w", err)
	}

	files := tar.NewReader(io.LimitReader(unzipped, maxKubeconfig))
	for {
		file, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the node sent an archive without a kubeconfig")
		}

		if err != nil {
			return nil, fmt.Errorf("unpack kubeconfig: %w", err)
		}

		if file.Name != "kubeconfig" {
			continue
		}

		kubeconfig, err := io.ReadAll(files)
		if err != nil {
			return nil, fmt.Errorf("unpack kubeconfig: %w", err)
		}

		return kubeconfig, nil
	}
}
