package steps

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/evidence"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
)

// bulky are the kinds of lines that have a file of their own in a bundle.
var bulky = []evidence.Kind{evidence.Kernel, evidence.Log}

// bundlePath is the file that was asked for, or a new one in the repository.
func (d *doctor) bundlePath(now time.Time) string {
	return cmp.Or(d.Settings.SnapshotFile, filepath.Join(d.Settings.RootDir,
		fmt.Sprintf("diagnosis-%s-%s.tar.gz", d.Cluster.Name, now.UTC().Format("20060102T150405Z"))))
}

// bundle writes all that was read into one file for a bug report, without secrets.
func (d *doctor) bundle(found *Diagnosis) error {
	file := d.bundlePath(time.Now())
	if d.Settings.DryRun {
		return d.wouldWrite(file, file)
	}

	err := d.gate.CreateFile(file, func(to *os.File) error { return d.pack(to, *found) })
	if err != nil {
		return unwritable(file, err)
	}

	found.Bundle = file

	return nil
}

// pack writes the archive. Every text in it goes through the redactor, whatever it is made of.
func (d *doctor) pack(to io.Writer, found Diagnosis) error {
	zipped := gzip.NewWriter(to)
	archive := &archive{tar: tar.NewWriter(zipped), redactor: d.redactor(found), at: time.Now()}

	archive.add("diagnosis.txt", found.Text()+"next: "+found.Next+"\n")
	archive.add("diagnosis.json", found.JSON())
	archive.add("computer.txt", d.computer())

	for _, node := range found.Nodes {
		files := node.files()
		for _, name := range slices.Sorted(maps.Keys(files)) {
			archive.add(path.Join("nodes", node.Seen.Node.Name, name), files[name])
		}

		if declared := d.Configs[node.Seen.Node.Name]; declared != nil {
			archive.add(path.Join("nodes", node.Seen.Node.Name, "declared.yaml"), string(machineconfig.Mask(declared.Bytes)))
		}
	}

	return cmp.Or(archive.err, archive.tar.Close(), zipped.Close())
}

// archive is a tar file that texts are added to; the first error stays.
type archive struct {
	tar      *tar.Writer
	redactor redactor
	at       time.Time
	err      error
}

func (a *archive) add(name, text string) {
	if a.err != nil || text == "" {
		return
	}

	text = a.redactor.redact(text)
	a.err = a.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text)), ModTime: a.at})

	if a.err == nil {
		_, a.err = io.WriteString(a.tar, text)
	}
}

// files are what was read of a node, by the files' names.
func (n NodeDiagnosis) files() map[string]string {
	files := map[string]string{
		"status.txt":   statusText(n),
		"dmesg.txt":    lined(n.told.kernel),
		"services.txt": servicesText(n.Seen),
		"facts.txt":    lined(n.told.facts),
	}

	var events []string
	for _, event := range n.told.events {
		events = append(events, event.Text())
	}

	files["events.txt"] = lined(events)

	for service, lines := range n.told.logs {
		files[path.Join("logs", filepath.Base(service)+".txt")] = lined(lines)
	}

	if n.Seen.Config != nil {
		files["running.yaml"] = string(machineconfig.Mask(n.Seen.Config.Bytes))
	}

	return files
}

func statusText(node NodeDiagnosis) string {
	lines := []string{node.headline()}
	if node.Seen.Status != nil {
		for _, condition := range node.Seen.Status.Unmet {
			lines = append(lines, condition.Name+": "+condition.Reason)
		}
	}

	for _, line := range node.told.lines() {
		if !slices.Contains(bulky, line.Kind) {
			lines = append(lines, string(line.Kind)+": "+line.Text)
		}
	}

	for what, why := range node.told.unread {
		lines = append(lines, "not read: "+what+": "+why)
	}

	return lined(lines)
}

func servicesText(seen observe.Observation) string {
	var lines []string
	for _, service := range seen.Services {
		lines = append(lines, fmt.Sprintf("%s %s healthy=%v %s", service.ID, service.State, service.Healthy,
			service.LastMessage))

		for _, event := range service.Events {
			lines = append(lines, fmt.Sprintf("  %s %s: %s", clockText(event.Time), event.State, event.Message))
		}
	}

	return lined(lines)
}

func lined(lines []string) string {
	if len(lines) == 0 {
		return ""
	}

	return strings.Join(lines, "\n") + "\n"
}

// computer is what the run was told, and where it runs. Of settings that may be anybody's text only the name is shown.
func (d *doctor) computer() string {
	lines := []string{
		runtime.GOOS + "/" + runtime.GOARCH + ", " + runtime.Version(),
		"now " + clockText(time.Now()),
		"cluster of " + filepath.Base(d.Cluster.Source) + ", Talos " + d.workspace.TalosVersion() +
			", endpoint " + d.Cluster.Endpoint.Host,
	}

	for _, pair := range d.workspace.Environ {
		name, value, _ := strings.Cut(pair, "=")

		knob, known := settings.Lookup(name)
		if !known || value == "" {
			continue
		}

		if !slices.Contains([]string{"switch", "duration", "number", "whole number", "word"}, knob.Type) {
			value = "(set)"
		}

		lines = append(lines, name+"="+value)
	}

	return lined(lines)
}

// redactor takes out of a text the secrets that the run knows, and then all that looks like one.
type redactor struct{ known []string }

// leastKnown is how long a secret is at least: shorter ones would be found in words.
const leastKnown = 8

// secretName is that of a variable whose value is a secret, and not the place of one.
var secretName = pattern.New(`(?i)(TOKEN|SECRET|PASSWORD|PASSPHRASE|CREDENTIAL|AUTH|KEY)S?$`)

// redactor knows the secrets of all machine configs, and of the environment.
func (d *doctor) redactor(found Diagnosis) redactor {
	var known []string

	for _, config := range d.Configs {
		known = append(known, machineconfig.Secrets(config.Bytes)...)
	}

	for _, node := range found.Nodes {
		if node.Seen.Config != nil {
			known = append(known, machineconfig.Secrets(node.Seen.Config.Bytes)...)
		}
	}

	for _, pair := range d.workspace.Environ {
		if name, value, _ := strings.Cut(pair, "="); secretName.MatchString(name) {
			known = append(known, value)
		}
	}

	// Of a text of many lines each line may turn up by itself.
	var lines []string
	for _, secret := range known {
		for line := range strings.Lines(secret) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}

	lines = slices.DeleteFunc(append(lines, known...), func(text string) bool { return len(text) < leastKnown })
	slices.SortFunc(lines, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })

	return redactor{slices.Compact(lines)}
}

func (r redactor) redact(text string) string {
	for _, secret := range r.known {
		text = strings.ReplaceAll(text, secret, machineconfig.Masked)
	}

	return report.Scrub(text)
}
