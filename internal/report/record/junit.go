package record

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
)

// The form that CI systems read, as testmoapp/junitxml describes it: a suite a step, a case a result or a finding.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Skipped  int          `xml:"skipped,attr"`
		Time     string       `xml:"time,attr"`
		Began    string       `xml:"timestamp,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     string      `xml:"time,attr"`
		Began    string      `xml:"timestamp,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string     `xml:"classname,attr"`
		Name    string     `xml:"name,attr"`
		Time    string     `xml:"time,attr"`
		Failure *junitText `xml:"failure"`
		Skipped *junitText `xml:"skipped"`
		Out     string     `xml:"system-out,omitempty"`
	}
	junitText struct {
		Type    string `xml:"type,attr,omitempty"`
		Message string `xml:"message,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes the results and findings as JUnit XML.
func (r *Run) WriteJUnit(out io.Writer) error {
	made := junitSuites{Name: "mage " + r.Target, Time: seconds(r.Took()), Began: r.Began.Format(time.RFC3339)}

	for _, step := range r.Steps {
		made.add(r.suiteOf(step))
	}

	if made.Failures == 0 && r.Word() != "done" && r.Word() != "would change" {
		made.add(r.unexplained())
	}

	encoder := xml.NewEncoder(out)
	encoder.Indent("", "  ")

	if _, err := io.WriteString(out, xml.Header); err != nil {
		return err //nolint:wrapcheck // it names the file
	}

	if err := encoder.Encode(made); err != nil {
		return fmt.Errorf("encode JUnit XML: %w", err)
	}

	_, err := io.WriteString(out, "\n")

	return err //nolint:wrapcheck // it names the file
}

func (s *junitSuites) add(suite junitSuite) {
	for _, one := range suite.Cases {
		suite.Tests++

		if one.Failure != nil {
			suite.Failures++
		}

		if one.Skipped != nil {
			suite.Skipped++
		}
	}

	s.Tests += suite.Tests
	s.Failures += suite.Failures
	s.Skipped += suite.Skipped
	s.Suites = append(s.Suites, suite)
}

func (r *Run) suiteOf(step *Step) junitSuite {
	suite := junitSuite{Name: step.Name, Time: seconds(r.stepTook(step)), Began: step.Began.Format(time.RFC3339)}

	for _, line := range r.Results {
		if line.Step == step.Name {
			suite.Cases = append(suite.Cases, caseOf(line, subject(line)))
		}
	}

	for _, line := range r.Findings {
		// A failure that ended the step for its node stands there as a result.
		if line.Step == step.Name && !r.hasResult(line) {
			suite.Cases = append(suite.Cases, caseOf(line, line.ID+" "+subject(line)))
		}
	}

	if step.Error != "" && !suite.failed() {
		suite.Cases = append(suite.Cases, junitCase{Class: step.Name, Name: "step", Time: suite.Time,
			Failure: &junitText{Message: headline(step.Error), Text: step.Error}})
	}

	return suite
}

func (s junitSuite) failed() bool {
	for _, one := range s.Cases {
		if one.Failure != nil {
			return true
		}
	}

	return false
}

// hasResult reports whether a finding is what a node's result says too.
func (r *Run) hasResult(finding report.Line) bool {
	at, there := r.resultAt[[2]string{finding.Step, finding.Node}]
	return there && r.Results[at].ID == finding.ID && r.Results[at].Cause == finding.Cause
}

// unexplained is the suite of a run that ended badly without a step that failed.
func (r *Run) unexplained() junitSuite {
	text := "it did not come to its end"
	if r.Outcome != nil {
		text = r.Outcome.Message
	}

	return junitSuite{Name: r.Target, Time: seconds(r.Took()), Began: r.Began.Format(time.RFC3339), Cases: []junitCase{{
		Class: r.Target, Name: "run", Time: seconds(r.Took()),
		Failure: &junitText{Message: headline(text), Text: text},
	}}}
}

func caseOf(line report.Line, name string) junitCase {
	made := junitCase{Class: line.Step, Name: name, Time: fmt.Sprintf("%.3f", line.Seconds)}
	text := strings.TrimSpace(said(line) + "\n" + line.Next)

	switch {
	case line.Status.Bad(), line.Status == "" && line.Severity == diagnosis.Failure.String():
		made.Failure = &junitText{Type: line.ID, Message: headline(said(line)), Text: text}
	case line.Status == report.Skipped, line.Severity == diagnosis.NotRun.String():
		made.Skipped = &junitText{Message: headline(said(line))}
	case line.Severity != diagnosis.OK.String():
		made.Out = text
	}

	return made
}

func subject(line report.Line) string {
	return diagnosis.Finding{Node: line.Node, Address: line.Address}.Subject()
}

func headline(text string) string { return diagnosis.Finding{Cause: text}.Headline() }

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
