package api

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/meta"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/machine"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/service"
)

// etcdDirectory is where a control plane keeps etcd's data.
const etcdDirectory = "/var/lib/etcd"

// directorySize is what an empty directory takes on the machine's disk, in bytes.
const directorySize = 4096

// read is the content of one of the few files that clients read; the second result is false when there is none.
func (s *fileAPI) read(name string) (string, bool) {
	switch name {
	case bootIDPath:
		return s.boot.ID + "\n", true
	case "/proc/cmdline":
		return s.boot.Node.Options().Cmdline + "\n", true
	case etcdDirectory + "/member/snap/db":
		return s.etcdDatabase()
	default:
		return "", false
	}
}

// etcdDatabase is the file that the member on this machine keeps its data in, whether it runs or not.
func (s *fileAPI) etcdDatabase() (string, bool) {
	member := s.boot.Node.ReadDrive().Etcd
	if member == nil || !s.boot.Services.Up(service.CRI) {
		return "", false
	}

	database, err := member.Cluster.Database()

	return string(database), err == nil
}

// Copy streams a file, or a directory with all that is in it, as a tar.gz.
func (s *fileAPI) Copy(request *machineapi.CopyRequest, stream machineapi.MachineService_CopyServer) error {
	root := path.Clean(request.GetRootPath())
	if !path.IsAbs(root) {
		return fmt.Errorf("path is not absolute %v", root)
	}

	zipper := gzip.NewWriter(dataWriter{stream})
	archive := tar.NewWriter(zipper)

	if err := s.archive(archive, root, root); err != nil {
		return err
	}

	return errors.Join(archive.Close(), zipper.Close())
}

// archive adds a file or directory, under its name relative to root.
func (s *fileAPI) archive(archive *tar.Writer, root, name string) error {
	relative := strings.TrimPrefix(strings.TrimPrefix(name, root), "/")
	if relative == "" {
		relative = "."
	}

	if content, ok := s.read(name); ok {
		if relative == "." {
			relative = path.Base(name)
		}

		if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: relative, Size: int64(len(content)),
			Mode: 0o444, ModTime: s.boot.Now()}); err != nil {
			return err
		}

		_, err := archive.Write([]byte(content))

		return err
	}

	entries, ok := s.directory(name)
	if !ok {
		return fmt.Errorf("lstat %s: no such file or directory", name)
	}

	if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: relative, Mode: 0o700,
		ModTime: s.boot.Now()}); err != nil {
		return err
	}

	for _, entry := range entries {
		if _, ok := s.directory(path.Join(name, entry)); !ok {
			continue // the machine has no more of it than its name
		}

		if err := s.archive(archive, root, path.Join(name, entry)); err != nil {
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

		if _, ok := s.directory(root); !ok {
			failure := &machineapi.DiskUsageInfo{Name: root, RelativeName: root,
				Error: fmt.Sprintf("lstat %s: no such file or directory", root)}
			if err := stream.Send(failure); err != nil {
				return err
			}

			continue
		}

		if _, err := s.usage(root, root, 0, request, stream); err != nil {
			return err
		}
	}

	return nil
}

// usage tells of a directory, and returns its size.
func (s *fileAPI) usage(root, name string, depth int32, request *machineapi.DiskUsageRequest,
	stream machineapi.MachineService_DiskUsageServer) (int64, error) {
	size := int64(directorySize)
	entries, _ := s.directory(name)

	for _, entry := range entries {
		if _, ok := s.directory(path.Join(name, entry)); !ok {
			continue
		}

		more, err := s.usage(root, path.Join(name, entry), depth+1, request, stream)
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

// List lists a directory: only /var/lib/etcd has anything in it that clients ask for.
func (s *fileAPI) List(request *machineapi.ListRequest, stream machineapi.MachineService_ListServer) error {
	root := path.Clean("/" + request.GetRoot())

	entries, known := s.directory(root)
	if !known {
		return fmt.Errorf("lstat %s: no such file or directory", root)
	}

	now := s.boot.Now().Unix()

	if err := stream.Send(&machineapi.FileInfo{Name: root, RelativeName: ".", Mode: uint32(os.ModeDir | 0o700),
		IsDir: true, Modified: now}); err != nil {
		return err
	}

	for _, entry := range entries {
		full := path.Join(root, entry)
		info := &machineapi.FileInfo{Name: full, RelativeName: entry, Mode: uint32(os.ModeDir | 0o700), IsDir: true,
			Modified: now}

		if path.Dir(full) == etcdDirectory+"/member/snap" {
			info.Mode, info.IsDir = 0o600, false
		}

		if err := stream.Send(info); err != nil {
			return err
		}
	}

	return nil
}

// directory is what a directory holds; the second result is false when there is none.
func (s *fileAPI) directory(root string) ([]string, bool) {
	drive := s.boot.Node.ReadDrive()
	mounted := s.boot.Services.Up(service.CRI)

	switch {
	case root == "/":
		return []string{"etc", "proc", "system", "var"}, true
	case root == "/var/lib":
		if mounted && s.boot.Config.Role().IsControlPlane() {
			return []string{"containerd", "etcd", "kubelet"}, true
		}

		return nil, true
	case root == etcdDirectory && mounted && s.boot.Config.Role().IsControlPlane():
		if drive.Etcd == nil {
			return nil, true
		}

		return []string{"member"}, true
	case root == etcdDirectory+"/member" && mounted && drive.Etcd != nil:
		return []string{"snap", "wal"}, true
	case root == etcdDirectory+"/member/snap" && mounted && drive.Etcd != nil:
		return drive.Etcd.SnapFiles(), true
	case root == etcdDirectory+"/member/wal" && mounted && drive.Etcd != nil:
		return nil, true
	default:
		return nil, false
	}
}

// bootIDPath is the one file that clients read to tell boots apart.
const bootIDPath = "/proc/sys/kernel/random/boot_id"

// Read gives a file's content.
func (s *fileAPI) Read(request *machineapi.ReadRequest, stream machineapi.MachineService_ReadServer) error {
	if content, ok := s.read(request.GetPath()); ok {
		return stream.Send(&common.Data{Bytes: []byte(content)})
	}

	if _, ok := s.directory(request.GetPath()); ok {
		return status.Error(codes.InvalidArgument, "path must be a regular file")
	}

	return status.Errorf(codes.NotFound, "stat %s: no such file or directory", request.GetPath())
}

// MetaWrite writes a key of the META partition.
func (s *fileAPI) MetaWrite(_ context.Context,
	request *machineapi.MetaWriteRequest) (*machineapi.MetaWriteResponse, error) {
	key, err := s.metaKey(request.GetKey())
	if err != nil {
		return nil, err
	}

	s.boot.Node.EditDrive(func(d *machine.Drive) { d.Meta[key] = string(request.GetValue()) })
	s.boot.Resources.ShowMeta(key, string(request.GetValue()))

	return &machineapi.MetaWriteResponse{Messages: []*machineapi.MetaWrite{{}}}, nil
}

// MetaDelete removes a key of the META partition.
func (s *fileAPI) MetaDelete(_ context.Context,
	request *machineapi.MetaDeleteRequest) (*machineapi.MetaDeleteResponse, error) {
	key, err := s.metaKey(request.GetKey())
	if err != nil {
		return nil, err
	}

	if _, ok := s.boot.Node.ReadDrive().Meta[key]; !ok {
		return nil, status.Error(codes.NotFound, "meta key not found")
	}

	s.boot.Node.EditDrive(func(d *machine.Drive) { delete(d.Meta, key) })
	s.boot.Resources.RemoveMeta(key)

	return &machineapi.MetaDeleteResponse{Messages: []*machineapi.MetaDelete{{}}}, nil
}

// metaKey is the key that a caller names, if it may be written.
func (s *fileAPI) metaKey(named uint32) (uint8, error) {
	const largest = 255

	if named > largest {
		return 0, status.Error(codes.InvalidArgument, "key must be a uint8")
	}

	key := uint8(named)

	if protocolOf(s.boot).keepsMetaKeys && !meta.IsAPIWriteable(key) {
		return 0, status.Error(codes.PermissionDenied, "meta key is not writeable via the API")
	}

	return key, nil
}
