package report_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/report"
)

func TestTextsAreBrokenBetweenWords(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		width      int
		text, want string
	}{
		"one that fits":     {20, "a node answers", "a node answers"},
		"any width":         {0, "a node answers at last", "a node answers at last"},
		"between words":     {16, "a node answers at last", "a node answers\n    at last"},
		"an indented line":  {16, "  a node answers at last", "  a node answers\n      at last"},
		"each line":         {9, "one two\nthree four", "one two\nthree\n    four"},
		"columns stay":      {20, "cp1    answers  well now", "cp1    answers  well\n    now"},
		"a path":            {16, "see /srv/clusters/lab/talos/talconfig.yaml there", "see\n/srv/clusters/lab/talos/talconfig.yaml\n    there"},
		"a command":         {24, "then mage verify -node=cp1 -noWait", "then\nmage verify -node=cp1 -noWait"},
		"Mage through Go":   {24, "then go tool mage verify -noWait", "then\ngo tool mage verify -noWait"},
		"a placeholder":     {24, "then mage reset -cluster=<its name> -yes", "then\nmage reset -cluster=<its name> -yes"},
		"an argument":       {24, "then mage etcd:recover <a file> now", "then\nmage etcd:recover <a file>\n    now"},
		"a flag":            {18, "or take -cluster=<its name> for all", "or take\n-cluster=<its name>\n    for all"},
		"a task":            {30, "then task bootstrap:talos -- -node=cp1", "then\ntask bootstrap:talos -- -node=cp1"},
		"in backticks":      {20, "type `sops updatekeys all.yaml` there", "type\n`sops updatekeys all.yaml`\n    there"},
		"another program's": {26, "look at talosctl -n cp1 dmesg and then reboot", "look at\n    talosctl -n cp1 dmesg\n    and then reboot"},
		"wide letters":      {12, "節点 節点 節点", "節点 節点\n    節点"},
	} {
		require.Equal(t, tt.want, report.Wrap(tt.text, tt.width), name)
	}
}
