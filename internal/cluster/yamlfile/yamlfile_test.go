package yamlfile_test

import (
	"reflect"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
)

type firewall struct {
	Action nethelpers.DefaultAction `yaml:"action"`
	Links  []*link                  `yaml:"links"`
}

type link struct {
	Name string `yaml:"name"`
	MTU  int    `yaml:"mtu"`
}

const text = `action: accep
links:
  - name: eth0
    mtu: big
  - null
  - {nmae: eth1}
`

func TestCheckSaysWhereAndWhichWouldDo(t *testing.T) {
	t.Parallel()

	source := yamlfile.Source{Shown: "a.yaml", Mistakes: &yamlfile.Mistakes{}}
	source.Check("the file", source.Parse([]byte(text)), reflect.TypeFor[firewall]())

	require.EqualError(t, source.Err(), `a.yaml:1:9: "action": "accep" is none of accept, block, did you mean "accept"?
a.yaml:4:10: "mtu" must be a number
a.yaml:5:5: an item of "links" is empty
a.yaml:6:6: unknown key "nmae", did you mean "name"?`)
}

// TestWhatATypeRefusesIsAbsent: the rest can be decoded.
func TestWhatATypeRefusesIsAbsent(t *testing.T) {
	t.Parallel()

	source := yamlfile.Source{Shown: "a.yaml", Mistakes: &yamlfile.Mistakes{}, Refused: &yamlfile.Mistakes{}}
	root := source.Parse([]byte("action: accep\nlinks: [{name: eth0, mtu: 1500}]\n"))
	source.Check("the file", root, reflect.TypeFor[firewall]())
	require.NoError(t, source.Err())
	require.ErrorContains(t, source.Refused.Err(), `a.yaml:1:9: "action": "accep" is none of accept, block`)

	var decoded firewall

	require.True(t, source.Decode(root, &decoded))
	require.Equal(t, []*link{{Name: "eth0", MTU: 1500}}, decoded.Links)
}

func TestDecodeTellsWhatCheckCanNotSee(t *testing.T) {
	t.Parallel()

	source := yamlfile.Source{Shown: "a.yaml", Mistakes: &yamlfile.Mistakes{}}
	root := source.Parse([]byte("links:\n  - mtu: \"1500\"\n"))
	source.Check("the file", root, reflect.TypeFor[firewall]())
	require.False(t, source.Decode(root, &firewall{}))
	require.ErrorContains(t, source.Err(), "a.yaml:2:")
}

func TestFieldAt(t *testing.T) {
	t.Parallel()

	source := yamlfile.Source{Shown: "a.yaml", Mistakes: &yamlfile.Mistakes{}}
	root := source.Parse([]byte(text))

	for place, want := range map[[2]int]string{
		{1, 1}: "", {1, 9}: "action", {2, 1}: "links", {3, 5}: "links[0]", {4, 5}: "links[0].mtu", {4, 10}: "links[0].mtu",
		{6, 12}: "links[2].nmae", {9, 9}: "",
	} {
		require.Equal(t, want, yamlfile.FieldAt(root, place[0], place[1]), "%v", place)
	}

	pasted := source.Parse([]byte("links: {abcdef.0123456789abcdef: {mtu: a}}"))
	require.Equal(t, "links.(masked: it looks like a key)", yamlfile.FieldAt(pasted, 1, 9))
	require.Equal(t, "links.(masked: it looks like a key).mtu", yamlfile.FieldAt(pasted, 1, 35))
}

func TestPlain(t *testing.T) {
	t.Parallel()

	require.Equal(t, "!!int", yamlfile.Plain("7").Tag)
	require.Equal(t, yaml.SequenceNode, yamlfile.Plain("[a, b]").Kind)
	require.Nil(t, yamlfile.Plain("[a"))
	require.Nil(t, yamlfile.Plain(""))
}
