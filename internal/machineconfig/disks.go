package machineconfig

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	blockpb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/block"
	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/proto"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
)

// DiskMatch says whether a disk of a node is one that the config would install on.
type DiskMatch struct {
	Disk *block.Disk
	// Chosen is set on the one disk that Talos would wipe: the first match in the list's order.
	Chosen bool
	// RuledOut says in plain words why the disk does not match; empty for a match.
	RuledOut []string
}

// Matches reports whether the disk fits.
func (m DiskMatch) Matches() bool { return len(m.RuledOut) == 0 }

// MatchDisks judges all disks of a node, in the order in which Talos looks at them, which is that of their names. disks
// is a COSI state that holds block.Disk resources. Source: Talos' install task, and InstallConfig.DiskMatchExpression.
func (c *Config) MatchDisks(ctx context.Context, disks state.State) ([]DiskMatch, error) {
	list, err := safe.StateListAll[*block.Disk](ctx, disks)
	if err != nil {
		return nil, fmt.Errorf("list disks: %w", err)
	}

	var (
		matches []DiskMatch
		chosen  bool
	)

	for disk := range list.All() {
		reasons, err := c.ruleOut(disk)
		if err != nil {
			return nil, err
		}

		match := DiskMatch{Disk: disk, RuledOut: reasons}
		match.Chosen = match.Matches() && !chosen
		chosen = chosen || match.Chosen

		matches = append(matches, match)
	}

	return matches, nil
}

// ruleOut lists what a disk fails; nothing if Talos would take it.
func (c *Config) ruleOut(disk *block.Disk) ([]string, error) {
	switch install := c.install(); {
	case c.IsUnattended():
		return c.ruleOutByDocument(disk.TypedSpec())
	case install == nil:
		return []string{"the config has no install section"}, nil
	case install.InstallDiskSelector == nil:
		return ruleOutByPath(install.InstallDisk, disk.TypedSpec()), nil
	default:
		matched, err := SelectsDisk(*install.InstallDiskSelector, disk.TypedSpec())
		if err != nil || matched {
			return nil, err
		}

		return explainClauses(*install.InstallDiskSelector, disk.TypedSpec())
	}
}

// ruleOutByDocument runs the expression of an UnattendedInstallConfig: no other condition is added to it.
func (c *Config) ruleOutByDocument(disk *block.DiskSpec) ([]string, error) {
	expression, has := c.DiskExpression()
	if !has {
		return []string{"the config names no install disk"}, nil
	}

	matched, err := holds(expression, disk)
	if err != nil || matched {
		return nil, err
	}

	var reasons []string

	for _, part := range conjuncts(c.diskExpressionText()) {
		clause, err := cel.ParseBooleanExpression(part, celenv.DiskLocator())
		if err != nil {
			continue // the whole was judged, only its parts can't be
		}

		if matched, err := holds(clause, disk); err == nil && !matched {
			reasons = append(reasons, "not "+part)
		}
	}

	if len(reasons) == 0 {
		reasons = []string{"does not match"}
	}

	return reasons, nil
}

// conjuncts are the parts of an expression that && joins at its top; the whole, if || does.
func conjuncts(expression string) []string {
	var (
		parts []string
		quote rune
		depth int
		start int
	)

	for i, char := range expression {
		switch {
		case quote != 0:
			if char == quote {
				quote = 0
			}
		case char == '"' || char == '\'':
			quote = char
		case char == '(' || char == '[':
			depth++
		case char == ')' || char == ']':
			depth--
		case depth == 0 && strings.HasPrefix(expression[i:], "||"):
			return []string{expression}
		case depth == 0 && strings.HasPrefix(expression[i:], "&&"):
			parts, start = append(parts, strings.TrimSpace(expression[start:i])), i+2
		}
	}

	return append(parts, strings.TrimSpace(expression[start:]))
}

func ruleOutByPath(path string, disk *block.DiskSpec) []string {
	if path == "" {
		return []string{"the config names no install disk"}
	}

	if disk.DevPath == path || slices.Contains(disk.Symlinks, path) {
		return nil
	}

	return []string{"is not " + path}
}

// SelectsDisk reports whether Talos would install on a disk by a selector.
func SelectsDisk(selector v1alpha1.InstallDiskSelector, disk *block.DiskSpec) (bool, error) {
	install := &v1alpha1.InstallConfig{InstallDiskSelector: &selector}

	expression, err := install.DiskMatchExpression()
	if err != nil {
		return false, fmt.Errorf("read install disk selector: %w", err)
	}

	return holds(*expression, disk)
}

// holds reports whether an expression is true of a disk.
func holds(expression cel.Expression, disk *block.DiskSpec) (bool, error) {
	resource := block.NewDisk(block.NamespaceName, "disk")
	*resource.TypedSpec() = *disk

	var spec blockpb.DiskSpec

	if err := proto.ResourceSpecToProto(resource, &spec); err != nil {
		return false, fmt.Errorf("convert disk: %w", err)
	}

	matched, err := expression.EvalBool(celenv.DiskLocator(), map[string]any{"disk": &spec, "system_disk": false})
	if err != nil {
		return false, fmt.Errorf("evaluate install disk selector: %w", err)
	}

	return matched, nil
}

// explainClauses tries each part of a selector by itself, on a copy of the disk that passes what Talos adds to every
// selector.
func explainClauses(selector v1alpha1.InstallDiskSelector, disk *block.DiskSpec) ([]string, error) {
	var reasons []string

	if disk.Transport == "" {
		reasons = append(reasons, "transport is empty, which Talos never installs on")
	}

	if disk.Readonly {
		reasons = append(reasons, "is read-only")
	}

	if disk.CDROM {
		reasons = append(reasons, "is a CD-ROM drive")
	}

	passable := *disk
	passable.Readonly, passable.CDROM = false, false

	if passable.Transport == "" {
		passable.Transport = "unknown"
	}

	for _, clause := range clauses(selector, disk) {
		matched, err := SelectsDisk(clause.selector, &passable)
		if err != nil {
			return nil, err
		}

		if !matched {
			reasons = append(reasons, clause.reason)
		}
	}

	return reasons, nil
}

type clause struct {
	selector v1alpha1.InstallDiskSelector
	reason   string
}

// clauses splits a selector into selectors of one field, each with the words for a disk that fails it.
func clauses(selector v1alpha1.InstallDiskSelector, disk *block.DiskSpec) []clause {
	var split []clause

	if selector.Size != nil {
		operator := selector.Size.MatchData.Op
		if operator == "" {
			operator = "=="
		}

		split = append(split, clause{
			v1alpha1.InstallDiskSelector{Size: selector.Size},
			fmt.Sprintf("size %s (%d bytes) is not %s %d bytes", disk.PrettySize, disk.Size, operator,
				selector.Size.MatchData.Size),
		})
	}

	for _, field := range []struct {
		name, pattern, value string
		selector             v1alpha1.InstallDiskSelector
	}{
		{"UUID", selector.UUID, disk.UUID, v1alpha1.InstallDiskSelector{UUID: selector.UUID}},
		{"WWID", selector.WWID, disk.WWID, v1alpha1.InstallDiskSelector{WWID: selector.WWID}},
		{"model", selector.Model, disk.Model, v1alpha1.InstallDiskSelector{Model: selector.Model}},
		{"serial", selector.Serial, disk.Serial, v1alpha1.InstallDiskSelector{Serial: selector.Serial}},
		{"modalias", selector.Modalias, disk.Modalias, v1alpha1.InstallDiskSelector{Modalias: selector.Modalias}},
		{"bus path", selector.BusPath, disk.BusPath, v1alpha1.InstallDiskSelector{BusPath: selector.BusPath}},
	} {
		if field.pattern != "" {
			split = append(split, clause{field.selector,
				fmt.Sprintf("%s %q does not match %q", field.name, field.value, field.pattern)})
		}
	}

	if selector.Type != "" {
		split = append(split, clause{v1alpha1.InstallDiskSelector{Type: selector.Type},
			typeReason(string(selector.Type), disk)})
	}

	return split
}

func typeReason(wanted string, disk *block.DiskSpec) string {
	switch wanted {
	case "ssd":
		return "is rotational, not an SSD"
	case "hdd":
		return "is not rotational, so no hard disk"
	default:
		return fmt.Sprintf("transport %q is not that of type %s", disk.Transport, wanted)
	}
}
