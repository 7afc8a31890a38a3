package dist

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// packer adds files to an archive.
type packer interface {
	add(name string, mode fs.FileMode, size int64) (io.Writer, error)
	Close() error
}

// pack puts the program into an archive, with what has to go with it.
func (o Options) pack(path string, made build) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("create archive: %w", err)
	}
	defer file.Close() //nolint:errcheck // written files are closed before

	var archive packer = newTarball(file, made)
	if strings.HasSuffix(path, ".zip") {
		archive = zipFile{zip.NewWriter(file), made}
	}

	for _, source := range []string{filepath.Join(o.Source, "LICENSE"), filepath.Join(o.Source, "README.md"), made.path} {
		if err := addFile(archive, source, source == made.path); err != nil {
			return fmt.Errorf("pack %s: %w", filepath.Base(source), err)
		}
	}

	if err := archive.Close(); err != nil {
		return fmt.Errorf("end archive: %w", err)
	}

	return file.Close() //nolint:wrapcheck // its text names the file
}

func addFile(archive packer, source string, executable bool) error {
	file, err := os.Open(source)
	if err != nil {
		return err //nolint:wrapcheck // the caller does
	}
	defer file.Close() //nolint:errcheck // it is only read

	info, err := file.Stat()
	if err != nil {
		return err //nolint:wrapcheck // the caller does
	}

	// Not the file's own mode, which is the umask's.
	mode := fs.FileMode(0o644)
	if executable {
		mode = 0o755
	}

	into, err := archive.add(filepath.Base(source), mode, info.Size())
	if err != nil {
		return err
	}

	_, err = io.Copy(into, file)

	return err //nolint:wrapcheck // the caller does
}

// tarball is a .tar.gz. Nothing in it tells who made it, and when.
type tarball struct {
	*tar.Writer
	zipped *gzip.Writer
	made   build
}

func newTarball(out io.Writer, made build) tarball {
	zipped := gzip.NewWriter(out)

	return tarball{tar.NewWriter(zipped), zipped, made}
}

func (t tarball) add(name string, mode fs.FileMode, size int64) (io.Writer, error) {
	err := t.WriteHeader(&tar.Header{Name: name, Mode: int64(mode), Size: size, ModTime: t.made.committed})

	return t, err //nolint:wrapcheck // the caller does
}

func (t tarball) Close() error {
	if err := t.Writer.Close(); err != nil {
		return err //nolint:wrapcheck // the caller does
	}

	return t.zipped.Close() //nolint:wrapcheck // the caller does
}

type zipFile struct {
	*zip.Writer
	made build
}

func (z zipFile) add(name string, mode fs.FileMode, _ int64) (io.Writer, error) {
	header := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: z.made.committed}
	header.SetMode(mode)

	return z.CreateHeader(header) //nolint:wrapcheck // the caller does
}

// writeChecksums writes those of a folder's files, as sha256sum does and checks them.
func writeChecksums(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("list files: %w", err)
	}

	var lines strings.Builder

	for _, entry := range entries {
		if entry.IsDir() {
			continue
		}

		sum, err := checksum(filepath.Join(folder, entry.Name()))
		if err != nil {
			return err
		}

		fmt.Fprintf(&lines, "%s  %s\n", sum, entry.Name())
	}

	path := filepath.Join(folder, "checksums.txt")
	if err := os.WriteFile(path, []byte(lines.String()), 0o644); err != nil { //nolint:gosec // for everybody
		return fmt.Errorf("write checksums: %w", err)
	}

	return nil
}

// checksum is a file's SHA-256, in hex.
func checksum(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("open file to sum: %w", err)
	}
	defer file.Close() //nolint:errcheck // it is only read

	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", fmt.Errorf("sum %s: %w", filepath.Base(path), err)
	}

	return hex.EncodeToString(sum.Sum(nil)), nil
}
