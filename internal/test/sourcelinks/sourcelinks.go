// Package sourcelinks makes links of the sources that the catalogue of diagnoses names, for the pages that tests make.
package sourcelinks

import (
	"regexp"
	"strings"
)

// sourceLink is a form in which a source is named, with where it can be read: $1 and so on are the form's groups.
type sourceLink struct {
	form *regexp.Regexp
	url  string
}

// sourceLinks are tried in order; what one has taken is left alone by those after it.
var sourceLinks = []sourceLink{
	{regexp.MustCompile(`https?://[^\s;,]+`), "$0"},
	{regexp.MustCompile(`([\w.-]+/[\w.-]+)#(\d+)`), "https://github.com/$1/issues/$2"},
	{regexp.MustCompile(`Talos (v[\d.]+): ((?:[\w.-]+/)+[\w.-]+)`), "https://github.com/siderolabs/talos/blob/$1/$2"},
	{regexp.MustCompile(`machinery ((?:[\w-]+/)+[\w-]+(?:\.go)?|compatibility)`),
		"https://github.com/siderolabs/talos/blob/v1.13.9/pkg/machinery/$1"},
	{regexp.MustCompile(`talhelper (v[\d.]+), ((?:[\w.-]+/)+[\w.-]+)`),
		"https://github.com/budimanjojo/talhelper/blob/$1/$2"},
	{regexp.MustCompile(`talhelper ((?:[\w.-]+/)+[\w.-]+)`), "https://github.com/budimanjojo/talhelper/blob/v3.1.16/$1"},
	{regexp.MustCompile(`talos-mage: docs/([\w-]+\.md)`), "$1"},
	{regexp.MustCompile(`Linux, ([\w-]+)\((\d)\)`), "https://man7.org/linux/man-pages/man$2/$1.$2.html"},
	{regexp.MustCompile(`Linux, ((?:[\w.-]+/)+[\w.-]+)`), "https://github.com/torvalds/linux/blob/HEAD/$1"},
	{regexp.MustCompile(`RFC (\d+)`), "https://www.rfc-editor.org/rfc/rfc$1"},
	{regexp.MustCompile(`yaml\.org/spec/[\d.]+`), "https://$0/"},
	{regexp.MustCompile(`client-go ((?:[\w.-]+/)+[\w.-]+)`), "https://github.com/kubernetes/client-go/blob/HEAD/$1"},
	{regexp.MustCompile(`(?:github\.com/)?(` + knownOwners + `/[\w.-]+)[:,]? ((?:[\w.-]+/)+[\w.-]+)`),
		"https://github.com/$1/blob/HEAD/$2"},
	{regexp.MustCompile(`(?:github\.com/)?(` + knownOwners + `/[\w-]+)`), "https://github.com/$1"},
	{regexp.MustCompile(`Talos documentation|docs\.siderolabs\.com`), "https://docs.siderolabs.com/talos/"},
	{regexp.MustCompile(`talhelper documentation|talhelper's guide`), "https://budimanjojo.github.io/talhelper/"},
	{regexp.MustCompile(`etcd documentation`), "https://etcd.io/docs/"},
	{regexp.MustCompile(`kubernetes\.io`), "https://kubernetes.io/docs/"},
	{regexp.MustCompile(`Linux kernel documentation`), "https://docs.kernel.org/"},
	{regexp.MustCompile(`IANA special-purpose address registries`),
		"https://www.iana.org/assignments/iana-ipv4-special-registry/"},
	{regexp.MustCompile(`IEEE 802\.1Q`), "https://standards.ieee.org/ieee/802.1Q/10323/"},
	{regexp.MustCompile(`Image Factory`), "https://factory.talos.dev/"},
	{regexp.MustCompile(`talhelper v[\d.]+`), "https://github.com/budimanjojo/talhelper"},
}

// knownOwners are those of repositories that sources name without a number.
const knownOwners = `(?:siderolabs|budimanjojo|cozystack|onedr0p|kubernetes|getsops|cilium|postfinance|a8m|Masterminds)`

// furtherIssue is an issue of the repository that was named before it.
var furtherIssue = regexp.MustCompile(`#(\d+)`)

// Of makes links, as Markdown has them, of what a source names. Words that name nothing that can be read stay
// as they are.
func Of(source string) string {
	pieces := []sourcePiece{{text: source}}

	for _, link := range sourceLinks {
		var next []sourcePiece
		for _, piece := range pieces {
			next = append(next, piece.split(link.form, link.url)...)
		}

		pieces = next
	}

	pieces = withFurtherIssues(pieces)

	var text strings.Builder
	for _, piece := range pieces {
		text.WriteString(piece.markdown())
	}

	return text.String()
}

// sourcePiece is a part of a source; one that is not known to be anywhere has no url.
type sourcePiece struct{ text, url string }

func (p sourcePiece) markdown() string {
	if p.url == "" {
		return p.text
	}

	return "[" + p.text + "](" + p.url + ")"
}

// split makes links of what has a form.
func (p sourcePiece) split(form *regexp.Regexp, url string) []sourcePiece {
	if p.url != "" {
		return []sourcePiece{p}
	}

	var (
		pieces []sourcePiece
		end    int
	)

	for _, match := range form.FindAllStringSubmatchIndex(p.text, -1) {
		pieces = append(pieces, sourcePiece{text: p.text[end:match[0]]},
			sourcePiece{text: p.text[match[0]:match[1]],
				url: string(form.ExpandString(nil, strings.ReplaceAll(url, "$0", "${0}"), p.text, match))})
		end = match[1]
	}

	return append(pieces, sourcePiece{text: p.text[end:]})
}

// withFurtherIssues makes links of "#456" in "siderolabs/talos#123, #456".
func withFurtherIssues(pieces []sourcePiece) []sourcePiece {
	var (
		linked     []sourcePiece
		repository string
	)

	for _, piece := range pieces {
		if before, _, issue := strings.Cut(piece.url, "/issues/"); issue {
			repository = before
		}

		if repository == "" {
			linked = append(linked, piece)
		} else {
			linked = append(linked, piece.split(furtherIssue, repository+"/issues/$1")...)
		}
	}

	return linked
}
