package emulator

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
)

// directorySize is what an empty directory takes on the machine's disk, in bytes.
const directorySize = 4096

// fileTree is what clients can see of a node's file systems.
type fileTree struct{ boot *boot }

// read is the content of one of the few files that clients read; the second result is false when there is none.
func (f *fileTree) read(name string) (string, bool) {
	switch name {
	case bootIDPath:
		return f.boot.id + "\n", true
	case "/proc/cmdline":
		return f.boot.node.options.Cmdline + "\n", true
	default:
		return "", false
	}
}

// Copy streams a file, or a directory with all that is in it, as a tar.gz.
func (s *fileAPI) Copy(request *machineapi.CopyRequest, stream machineapi.MachineService_CopyServer) error {
	root := path.Clean(request.GetRootPath())
	if !path.IsAbs(root) {
		return fmt.Errorf("path is not absolute %v", root)
	}

	zipper := gzip.NewWriter(dataWriter{stream})
	archive := tar.NewWriter(zipper)

	if err := s.boot.files.archive(archive, root, root); err != nil {
		return err
	}

	return errors.Join(archive.Close(), zipper.Close())
}

// archive adds a file or directory, under its name relative to root.
func (f *fileTree) archive(archive *tar.Writer, root, name string) error {
	relative := strings.TrimPrefix(strings.TrimPrefix(name, root), "/")
	if relative == "" {
		relative = "."
	}

	if content, ok := f.read(name); ok {
		if relative == "." {
			relative = path.Base(name)
		}

		if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: relative, Size: int64(len(content)),
			Mode: 0o444, ModTime: f.boot.now()}); err != nil {
			return err
		}

		_, err := archive.Write([]byte(content))

		return err
	}

	entries, ok := f.directory(name)
	if !ok {
		return fmt.Errorf("lstat %s: no such file or directory", name)
	}

	if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: relative, Mode: 0o700,
		ModTime: f.boot.now()}); err != nil {
		return err
	}

	for _, entry := range entries {
		if _, ok := f.directory(path.Join(name, entry)); !ok {
			continue // the machine has no more of it than its name
		}

		if err := f.archive(archive, root, path.Join(name, entry)); err != nil {
			return err
		}
	}

	return nil
}

// DiskUsage tells the sizes of directories, those further down first, or why one can't be read.
func (s *fileAPI) DiskUsage(request *machineapi.DiskUsageRequest,
	stream machineapi.MachineService_DiskUsageServer) error {
	for _, name := range request.GetPaths() {
		root := path.Clean("/" + name)

		if _, ok := s.boot.files.directory(root); !ok {
			failure := &machineapi.DiskUsageInfo{Name: root, RelativeName: root,
				Error: fmt.Sprintf("lstat %s: no such file or directory", root)}
			if err := stream.Send(failure); err != nil {
				return err
			}

			continue
		}

		if _, err := s.boot.files.usage(root, root, 0, request, stream); err != nil {
			return err
		}
	}

	return nil
}

// usage tells of a directory, and returns its size.
func (f *fileTree) usage(root, name string, depth int32, request *machineapi.DiskUsageRequest,
	stream machineapi.MachineService_DiskUsageServer) (int64, error) {
	size := int64(directorySize)
	entries, _ := f.directory(name)

	for _, entry := range entries {
		if _, ok := f.directory(path.Join(name, entry)); !ok {
			continue
		}

		more, err := f.usage(root, path.Join(name, entry), depth+1, request, stream)
		if err != nil {
			return 0, err
		}

		size += more
	}

	if limit := request.GetRecursionDepth(); limit > 0 && depth >= limit {
		return size, nil
	}

	relative := strings.TrimPrefix(strings.TrimPrefix(name, root), "/")
	if relative == "" {
		relative = "."
	}

	return size, stream.Send(&machineapi.DiskUsageInfo{Name: name, RelativeName: relative, Size: size})
}

// dataWriter writes into a stream of data frames.
type dataWriter struct {
	stream grpc.ServerStreamingServer[common.Data]
}

// Write implements io.Writer. The frame gets a copy, since it may be sent later.
func (w dataWriter) Write(data []byte) (int, error) {
	if err := w.stream.Send(&common.Data{Bytes: append([]byte(nil), data...)}); err != nil {
		return 0, err
	}

	return len(data), nil
}
