package rewrite

import (
	"slices"
	"strings"
)

// document is one that is made: a kind, maybe a name, and keys.
type document struct {
	kind, name string
	// comments stand above it.
	comments []string
	// deletes is set for one that takes the document out.
	deletes bool
	// controlPlane is set for a kind that workers must not have.
	controlPlane bool

	keys branch
}

// branch is a key of a document with what is below: a value as it was written, or further keys.
type branch struct {
	key      string
	value    *fragment
	branches []*branch
}

// set puts a value under dotted keys. What stood there is replaced.
func (b *branch) set(keys string, value fragment) {
	at := b
	for key := range strings.SplitSeq(keys, ".") {
		at = at.below(key)
	}

	at.value = &value
}

// setKey is set with a last key that may have dots.
func (b *branch) setKey(keys, last string, value fragment) {
	at := b
	for key := range strings.SplitSeq(keys, ".") {
		at = at.below(key)
	}

	at.below(last).value = &value
}

func (b *branch) below(key string) *branch {
	for _, one := range b.branches {
		if one.key == key {
			return one
		}
	}

	made := &branch{key: key}
	b.branches = append(b.branches, made)

	return made
}

// diskKey selects the disk of an installation.
const diskKey = "provisioning.diskSelector.match"

// lacksDisk reports whether a document is about an installation and selects no disk.
func (d *document) lacksDisk() bool {
	if d.kind != installKind || d.deletes {
		return false
	}

	at := &d.keys
	for key := range strings.SplitSeq(diskKey, ".") {
		next := slices.IndexFunc(at.branches, func(one *branch) bool { return one.key == key })
		if next < 0 {
			return true
		}

		at = at.branches[next]
	}

	return false
}

const installKind = "UnattendedInstallConfig"

// WithDisk is a document about an installation, as Strategic makes them, that selects a disk.
func WithDisk(installs, expression string) string {
	text := strings.TrimSuffix(installs, "\n")
	selects := plain(expression)
	match := strings.Join(append([]string{"diskSelector:\n    match:" + selects.rest}, nested(selects)...), "\n")

	if before, after, found := strings.Cut(text, "\nprovisioning:\n"); found {
		return before + "\nprovisioning:\n  " + match + "\n" + after + "\n"
	}

	return text + "\nprovisioning:\n  " + match + "\n"
}

func nested(value fragment) []string {
	var lines []string
	for _, line := range value.below {
		lines = append(lines, "    "+line)
	}

	return lines
}

// keep puts comments above the document, unless they stand in it already.
func (d *document) keep(comments []string) {
	if text := strings.Join(comments, "\n"); text != "" && !strings.Contains(strings.Join(d.lines(), "\n"), text) {
		d.comments = slices.Concat(comments, d.comments)
	}
}

// lines are the document's text.
func (d *document) lines() []string {
	lines := slices.Concat(d.comments, []string{"apiVersion: v1alpha1", "kind: " + d.kind})

	if d.name != "" {
		lines = append(lines, "name:"+plain(d.name).rest)
	}

	if d.deletes {
		return append(lines, "$patch: delete")
	}

	for _, one := range d.keys.branches {
		lines = append(lines, one.lines("")...)
	}

	return lines
}

func (b *branch) lines(indent string) []string {
	var lines []string

	key := indent + strings.TrimPrefix(plain(b.key).rest, " ") + ":"

	if b.value == nil {
		lines = append(lines, key)
	} else {
		for _, comment := range b.value.comments {
			lines = append(lines, indent+comment)
		}

		lines = append(lines, key+b.value.rest)

		for _, line := range b.value.below {
			if line != "" {
				line = indent + line
			}

			lines = append(lines, line)
		}
	}

	for _, one := range b.branches {
		lines = append(lines, one.lines(indent+"  ")...)
	}

	return lines
}
