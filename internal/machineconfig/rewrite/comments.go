package rewrite

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// liftComments puts the comments at the braces of mappings above their keys, or above their items in a list: written in
// lines of its own a mapping has no place for them.
func (p part) liftComments(node *yaml.Node) {
	for i, child := range node.Content {
		p.liftComments(child)

		if child.Kind != yaml.MappingNode || child.Style&yaml.FlowStyle == 0 {
			continue
		}

		above := child
		if node.Kind == yaml.MappingNode {
			above = node.Content[i-1]
		}

		comments := append([]string{above.HeadComment}, p.lostComments(child)...)
		comments = append(comments, child.LineComment)
		child.LineComment = ""
		above.HeadComment = strings.Join(slices.DeleteFunc(comments, func(one string) bool { return one == "" }), "\n")
	}
}

// lostComments are those between the braces of a mapping that the parser has given to no node.
func (p part) lostComments(mapping *yaml.Node) []string {
	known := strings.Join(commentsOf(mapping), "\n")

	return slices.DeleteFunc(p.commentsBetween(mapping), func(comment string) bool {
		return strings.Contains(known, comment)
	})
}

func commentsOf(node *yaml.Node) []string {
	all := []string{node.HeadComment, node.LineComment, node.FootComment}
	for _, child := range node.Content {
		all = append(all, commentsOf(child)...)
	}

	return all
}

// commentsBetween are the comments in the text of a mapping in braces.
func (p part) commentsBetween(mapping *yaml.Node) []string {
	var read braces

	line := p.lines[mapping.Line-1][mapping.Column-1:]
	for at := mapping.Line; !read.ends(line) && at < len(p.lines); at++ {
		line = p.lines[at]
	}

	return read.comments
}

// braces reads the lines of a value in braces.
type braces struct {
	comments []string
	quote    rune
	depth    int
}

// ends reports whether the value ends in a line.
func (b *braces) ends(line string) bool {
	before := ' '

	for at, char := range line {
		switch {
		case b.quote != 0 && (char != b.quote || before == '\\'):
		case b.quote != 0:
			b.quote = 0
		case char == '#' && strings.ContainsRune(" \t", before):
			b.comments = append(b.comments, strings.TrimRight(line[at:], " \t\r"))

			return false
		case strings.ContainsRune(`'"`, char) && strings.ContainsRune(" \t{[,:'\"", before):
			b.quote = char
		case char == '{':
			b.depth++
		case char == '}':
			if b.depth--; b.depth == 0 {
				return true
			}
		}

		before = char
	}

	return false
}
