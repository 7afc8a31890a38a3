package kube

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/talos-mage/talos-mage/internal/base/atomicfile"
	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/base/plainfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// DefaultMinValidity is how long a client certificate must still be good for the file to be left alone: 30 days.
const DefaultMinValidity = 30 * 24 * time.Hour

// MergeOptions say how a kubeconfig is merged.
type MergeOptions struct {
	// Force replaces a context of the same name that leads to another cluster. Nothing else is ever replaced.
	Force bool
	// DryRun tells what would change and writes nothing.
	DryRun bool
	// MinValidity of the present client certificate; DefaultMinValidity if zero.
	MinValidity time.Duration
	// Now is the time that certificates are judged by; nil for the real one.
	Now func() time.Time
	// LockFolder is where this program's own lock is, by which it knows whether one of its processes still lives; the
	// system's folder for temporary files if empty.
	LockFolder string
}

// MergeResult says what became of the file.
type MergeResult struct {
	// Changed is true when the file was written, or would be in a dry run.
	Changed bool
	// Backup is the path of the old file's copy; empty if there was none, or nothing changed.
	Backup string
	// Context is the name of the cluster's context in the file.
	Context string
	// Reason says in a few words why the file was changed or left alone.
	Reason string
	// Expires is when the context's client certificate ends.
	Expires time.Time
}

// Merge brings the cluster's context of a fetched kubeconfig into the file at path.
//
//   - A file that is missing or empty becomes the fetched one; a missing folder is made with mode 0700.
//   - A file that has the context with the same server and the same CA, and a client certificate of that CA that is
//     good for MinValidity, is not touched at all, not even its current context.
//   - One whose client certificate is not good any more gets the new one: in that user alone.
//   - A context of the same name with another server or CA is refused, unless Force is set.
//   - Otherwise context, cluster and user are added. Should another context use a cluster or a user of the same name,
//     ours gets a number ("home-2"), so that no other context ever changes its meaning.
//
// A changed file has the cluster's context as its current one, as with talosctl. Everything else stays, unknown keys
// and comments too; the text is laid out anew. The file is replaced whole, with mode 0600, after a backup with mode
// 0600; a symbolic link stays one. While it changes, kubectl's own lock file keeps other writers away; one that this
// program left when it was killed is taken away. Errors that concern the user's file are *diagnosis.Problem; after any
// error the file is as it was.
func Merge(path string, fetched []byte, options MergeOptions) (MergeResult, error) {
	if options.MinValidity == 0 {
		options.MinValidity = DefaultMinValidity
	}

	if options.Now == nil {
		options.Now = time.Now
	}

	ours, err := readFetched(fetched, options.Now())
	if err != nil {
		return MergeResult{}, problem(diagnosis.KubeconfigUnusable, err,
			fmt.Sprintf("the kubeconfig that the node gave can't be used: %s", err), "mage status")
	}

	// It may be in kubectl's way only.
	if !options.DryRun {
		newFileLock(path, options.LockFolder).removeAbandoned()
	}

	// Looked at first without the lock: a file that is good is left alone even in a folder that is read-only.
	result, _, err := plan(path, fetched, ours, options)
	if err != nil || !result.Changed || options.DryRun {
		return result, err
	}

	return change(path, fetched, ours, options)
}

// change plans again, now that nobody else writes, and writes.
func change(path string, fetched []byte, ours entry, options MergeOptions) (MergeResult, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return MergeResult{}, unwritable(path, err)
	}

	lock := newFileLock(path, options.LockFolder)
	if err := lock.take(path); err != nil {
		return MergeResult{}, err
	}

	defer lock.release()

	result, merged, err := plan(path, fetched, ours, options)
	if err != nil || !result.Changed {
		return result, err
	}

	backup, err := atomicfile.Backup(path, options.Now())
	if err != nil {
		return MergeResult{}, unwritable(path, err)
	}

	if err := atomicfile.WriteFile(path, merged, 0o600); err != nil {
		if backup != "" {
			err = errors.Join(err, os.Remove(backup))
		}

		return MergeResult{}, unwritable(path, err)
	}

	result.Backup = backup

	return result, nil
}

// entry is one context of a kubeconfig with what it refers to; what is missing is nil.
type entry struct {
	name    string
	context *clientcmdapi.Context
	cluster *clientcmdapi.Cluster
	user    *clientcmdapi.AuthInfo
	// authorities are the cluster's CAs, certificate the user's.
	authorities []*x509.Certificate
	certificate *x509.Certificate
}

// lookup finds a context, its cluster and its user.
func lookup(from *clientcmdapi.Config, name string) entry {
	found := entry{name: name, context: from.Contexts[name]}
	if found.context == nil {
		return found
	}

	// A CA or a certificate that can't be read is no reason to fail: it just isn't what it should be.
	if found.cluster = from.Clusters[found.context.Cluster]; found.cluster != nil {
		found.authorities, _ = parseCertificates(authorityPEM(found.cluster))
	}

	if found.user = from.AuthInfos[found.context.AuthInfo]; found.user != nil {
		if pair, err := tls.X509KeyPair(
			dataOrFile(found.user.ClientCertificateData, found.user.ClientCertificate),
			dataOrFile(found.user.ClientKeyData, found.user.ClientKey),
		); err == nil {
			found.certificate = pair.Leaf
		}
	}

	return found
}

func authorityPEM(cluster *clientcmdapi.Cluster) []byte {
	return dataOrFile(cluster.CertificateAuthorityData, cluster.CertificateAuthority)
}

// dataOrFile is a kubeconfig's embedded data or, without it, the content of the file that it names; nil if that can't
// be read.
func dataOrFile(data []byte, path string) []byte {
	if len(data) > 0 || path == "" {
		return data
	}

	content, _, err := plainfile.Read(path)
	if err != nil {
		return nil
	}

	return content
}

// readFetched finds the cluster's entry in what a node gave and refuses what would be of no use.
func readFetched(fetched []byte, now time.Time) (entry, error) {
	config, err := clientcmd.Load(fetched)
	if err != nil {
		return entry{}, fmt.Errorf("read it: %w", err)
	}

	ours := lookup(config, config.CurrentContext)

	switch {
	case ours.cluster == nil || ours.user == nil:
		return entry{}, fmt.Errorf("its current context %q is not complete", config.CurrentContext)
	case ours.cluster.Server == "":
		return entry{}, errors.New("it names no server")
	case len(ours.authorities) == 0:
		return entry{}, errors.New("it has no CA")
	case ours.certificate == nil:
		return entry{}, errors.New("it has no client certificate with its key")
	case !signedBy(ours.certificate, ours.authorities):
		return entry{}, errors.New("its client certificate is not of its CA")
	case now.After(ours.certificate.NotAfter):
		return entry{}, fmt.Errorf("its client certificate ended at %s", ours.certificate.NotAfter.UTC().Format(time.RFC3339))
	}

	return ours, nil
}

// readFile reads the user's file. A missing or an empty one is an empty kubeconfig.
func readFile(path string) ([]byte, *clientcmdapi.Config, error) {
	data, _, err := plainfile.Read(path)

	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, clientcmdapi.NewConfig(), nil
	case err != nil:
		return nil, nil, broken(path, err)
	}

	config, err := load(path, data)
	if err != nil {
		return nil, nil, broken(path, err)
	}

	return data, config, nil
}

// load parses a kubeconfig's text as if it were the file at path: that is what relative paths in it refer to.
func load(path string, data []byte) (*clientcmdapi.Config, error) {
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, err
	}

	for _, cluster := range config.Clusters {
		cluster.LocationOfOrigin = path
	}

	for _, user := range config.AuthInfos {
		user.LocationOfOrigin = path
	}

	return config, clientcmd.ResolveLocalPaths(config)
}

// plan decides what is to become of the file and makes its new content.
func plan(path string, fetched []byte, ours entry, options MergeOptions) (MergeResult, []byte, error) {
	data, config, err := readFile(path)
	if err != nil {
		return MergeResult{}, nil, err
	}

	result := MergeResult{Changed: true, Context: ours.name, Expires: ours.certificate.NotAfter}

	if len(config.Contexts) == 0 && len(config.Clusters) == 0 && len(config.AuthInfos) == 0 && isEmpty(data) {
		result.Reason = "the file is new"

		return result, fetched, nil
	}

	present := lookup(config, ours.name)

	switch {
	case present.context == nil:
		result.Reason = "the context was added"
	case present.cluster == nil:
		result.Reason = "the context lacked its cluster"
	case present.sameCluster(ours):
		good, until := present.good(ours, options)
		if good {
			return MergeResult{
				Context: ours.name, Expires: until,
				Reason: "the file has this context, and its client certificate is good until " + until.UTC().Format(time.DateOnly),
			}, nil, nil
		}

		result.Reason = "the client certificate was renewed"
	case options.Force:
		result.Reason = "the context of another cluster was replaced"
	default:
		return MergeResult{}, nil, conflict(path, present, ours)
	}

	merged, err := edit(path, data, config, ours)
	if err != nil {
		return MergeResult{}, nil, broken(path, err)
	}

	return result, merged, nil
}

// sameCluster compares server and CA: not names, not files.
func (e entry) sameCluster(other entry) bool {
	return e.cluster != nil && normalServer(e.cluster.Server) == normalServer(other.cluster.Server) &&
		containsAll(e.authorities, other.authorities) && containsAll(other.authorities, e.authorities)
}

func containsAll(these, those []*x509.Certificate) bool {
	return !slices.ContainsFunc(those, func(one *x509.Certificate) bool { return !slices.ContainsFunc(these, one.Equal) })
}

// normalServer makes two spellings of one server equal.
func normalServer(server string) string {
	parsed, err := url.Parse(server)
	if err != nil {
		return server
	}

	host := strings.ToLower(parsed.Host)
	if parsed.Port() == "" && parsed.Scheme == "https" {
		host += ":443"
	}

	return parsed.Scheme + "://" + host + strings.TrimSuffix(parsed.Path, "/")
}

// good reports whether the present client certificate can stay, and until when.
func (e entry) good(ours entry, options MergeOptions) (good bool, until time.Time) {
	if e.certificate == nil || !signedBy(e.certificate, ours.authorities) {
		return false, time.Time{}
	}

	now := options.Now()

	return !now.Before(e.certificate.NotBefore) && now.Add(options.MinValidity).Before(e.certificate.NotAfter),
		e.certificate.NotAfter
}

func problem(id diagnosis.ID, err error, cause, next string) *diagnosis.Problem {
	return diagnosis.NewProblem(id, cause, next).From(err)
}

func conflict(path string, present, ours entry) error {
	difference := fmt.Sprintf("its server is %s, this cluster's is %s", present.cluster.Server, ours.cluster.Server)
	if normalServer(present.cluster.Server) == normalServer(ours.cluster.Server) {
		difference = fmt.Sprintf("its CA is not the one of this cluster at %s", ours.cluster.Server)
	}

	return problem(diagnosis.KubeconfigConflict, nil,
		fmt.Sprintf("%s has a context %q of another cluster: %s", path, ours.name, difference),
		"mage kubeconfig -force, which replaces that context alone; or KUBECONFIG=<another file> mage kubeconfig")
}

// yamlLine is the one part of a YAML error that holds nothing of the file's content.
var yamlLine = pattern.New(`line \d+`)

// broken is for a file that can't be read. The cause is shown without any of the file's content, which holds keys.
func broken(path string, err error) error {
	cause := "it is not a kubeconfig"

	var (
		pathError *fs.PathError
		layout    *layoutError
	)

	switch line := yamlLine.FindString(err.Error()); {
	case errors.As(err, &pathError):
		cause = pathError.Err.Error()
	case errors.As(err, &layout):
		cause = layout.Error()
	case line != "":
		cause = "it is not valid YAML at " + line
	}

	return problem(diagnosis.KubeconfigBroken, err,
		fmt.Sprintf("the existing %s can't be read, so it is left alone: %s", path, cause),
		"correct the file or move it away, then mage kubeconfig; or KUBECONFIG=<another file> mage kubeconfig")
}

func unwritable(path string, err error) error {
	found := problem(diagnosis.KubeconfigUnwritable, err, fmt.Sprintf("%s can't be written: %s", path, err),
		"make its folder writable, then mage kubeconfig; or KUBECONFIG=<another file> mage kubeconfig")

	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		// No setting or file is wrong.
		found.Exit = diagnosis.ExitUnexpected
		found.Next = "free some space, then mage kubeconfig"
	}

	return found
}
