package report

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Workflow writes the commands by which a job of GitHub Actions has its log folded, and findings shown beside the lines
// of files.
type Workflow struct {
	// Root is the folder that the paths of findings are relative to, Checkout that of the repository.
	Root, Checkout string
}

// Annotation is the command for a finding that is no good news; nothing for any other.
func (w Workflow) Annotation(finding diagnosis.Finding) string {
	level := map[diagnosis.Severity]string{diagnosis.Warning: "warning", diagnosis.Failure: "error"}[finding.Severity]
	if level == "" {
		return ""
	}

	message := finding.Headline()
	if finding.Node != "" {
		message = finding.Subject() + ": " + message
	}

	if finding.Next != "" {
		message += ". Next: " + finding.Next
	}

	return fmt.Sprintf("::%s %stitle=%s::%s", level, w.place(finding.At), property(string(finding.ID)),
		escaped(Scrub(message)))
}

// place is where a person corrects what was found: in what the file was made from, if that is known.
func (w Workflow) place(at diagnosis.Location) string {
	if at.From != nil {
		at = *at.From
	}

	if at.Path == "" || at.Unwritten {
		return ""
	}

	place := "file=" + property(w.inCheckout(at.Path)) + ","
	if at.Line > 0 {
		place += fmt.Sprintf("line=%d,", at.Line)
	}

	if at.Line > 0 && at.Column > 0 {
		place += fmt.Sprintf("col=%d,", at.Column)
	}

	return place
}

// inCheckout is a path as Actions look for it.
func (w Workflow) inCheckout(path string) string {
	absolute := path
	if !filepath.IsAbs(absolute) {
		absolute = filepath.Join(w.Root, path)
	}

	relative, err := filepath.Rel(w.Checkout, absolute)
	if w.Checkout == "" || err != nil || strings.HasPrefix(relative, "..") {
		return path
	}

	return filepath.ToSlash(relative)
}

// escaped is a text as a command's message.
func escaped(text string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(text)
}

// property is a text as a command's property.
func property(text string) string {
	return strings.NewReplacer(":", "%3A", ",", "%2C").Replace(escaped(text))
}

// endGroup ends the step's group, and puts its findings beside the lines of files: outside, where they are seen.
func (c *Console) endGroup() {
	if c.options.Workflow == nil {
		return
	}

	c.print("::endgroup::")

	annotated := told{}
	for _, finding := range c.view.findings {
		c.annotate(annotated, finding)
	}

	for _, result := range c.view.results {
		if problem, ok := diagnosis.AsProblem(result.Err); ok {
			c.annotate(annotated, problem.Finding)
		}
	}
}

// annotate annotates a cause once.
func (c *Console) annotate(annotated told, finding diagnosis.Finding) {
	if annotation := c.options.Workflow.Annotation(finding); annotation != "" && !annotated.has(finding) {
		annotated.add(finding)
		c.print(annotation)
	}
}
