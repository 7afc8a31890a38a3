package generate

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// files are the @files that were read so far, by path; each is read once.
type files map[string]*file

// file is an @file. Its mistakes are shown at its own path.
type file struct {
	yamlfile.Source

	read *reading.File
	text string
	// unusable is set when the mistake is told already.
	unusable bool
}

// newFile is a file whose mistakes are added to those of another.
func newFile(source yamlfile.Source, read *reading.File) *file {
	source.Shown = read.Shown

	return &file{Source: source, read: read}
}

// open reads the file of a reference @path, which stands at a place of the talconfig.
func (c *cluster) open(place *yaml.Node, reference string) *file {
	path := strings.TrimSpace(strings.TrimPrefix(reference, "@"))
	if path == "" {
		c.At(place, diagnosis.FileValue, "%q names no file", reference)

		return &file{unusable: true}
	}

	if !filepath.IsAbs(path) {
		path = filepath.Join(c.folder, path)
	}

	if known := c.files[path]; known != nil {
		return known
	}

	opened := newFile(c.Source, c.source.Cluster.Files.Open(path))
	c.files[path] = opened

	if opened.read.Err != nil {
		mistake := c.Mistake(place, diagnosis.FileUnreadable, "file %s can't be read", opened.Shown)
		if opened.read.Missing() {
			mistake = c.Mistake(place, diagnosis.FileMissing, "file %s does not exist", opened.Shown)
		}

		mistake.Err = opened.read.Err
		c.Add(mistake)

		opened.unusable = true

		return opened
	}

	opened.text = opened.decrypted(c.Source, place)

	return opened
}

// decrypted is the text of a file that sops may have encrypted. A mistake is told of a place in the file that names it.
func (f *file) decrypted(in yamlfile.Source, place *yaml.Node) string {
	if !reading.Sealed(f.read.Data) {
		return string(bytes.TrimPrefix(f.read.Data, []byte("\xef\xbb\xbf")))
	}

	plain, err := f.read.Decrypted()
	if err == nil {
		return string(plain)
	}

	mistake := in.Mistake(place, diagnosis.SecretsUndecryptable, "file %s can't be decrypted: %s", f.Shown, err)
	mistake.Err = err

	if problem, known := diagnosis.AsProblem(err); known {
		mistake.Message, mistake.Next = problem.Cause, problem.Next
	} else if errors.Is(err, reading.ErrNoKey) {
		mistake.Message = fmt.Sprintf("file %s %s", f.Shown, err)
	}

	in.Add(mistake)

	f.unusable = true

	return ""
}

// content is a text that is given as such, or as @file. The variables in a file's text are replaced, but for lines that
// are comments.
func (c *cluster) content(place *yaml.Node, text string, asIs bool) string {
	if !strings.HasPrefix(text, "@") || strings.TrimSpace(text) == "@" {
		return text
	}

	opened := c.open(place, text)
	if asIs || !strings.Contains(opened.text, "$") {
		return opened.text
	}

	var replaced strings.Builder

	number := 0

	for line := range strings.Lines(opened.text) {
		number++

		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			scalar := &yaml.Node{Kind: yaml.ScalarNode, Style: yaml.LiteralStyle, Value: line, Line: number, Column: 1}
			c.variables.SubstituteForeign(opened.Source, scalar)
			line = scalar.Value
		}

		replaced.WriteString(line)
	}

	return replaced.String()
}
