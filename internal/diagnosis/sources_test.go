package diagnosis_test

import (
	"net/url"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/test/sourcelinks"
)

func TestSourcesAreLinks(t *testing.T) {
	t.Parallel()

	for source, linked := range map[string]string{
		"siderolabs/talos#7928": "[siderolabs/talos#7928](https://github.com/siderolabs/talos/issues/7928)",
		"siderolabs/talos#1, #22, budimanjojo/talhelper#3": "[siderolabs/talos#1](https://github.com/siderolabs/talos/issues/1), " +
			"[#22](https://github.com/siderolabs/talos/issues/22), " +
			"[budimanjojo/talhelper#3](https://github.com/budimanjojo/talhelper/issues/3)",
		"machinery config/contract.go, more": "[machinery config/contract.go](https://github.com/siderolabs/talos/blob/v1.13.9/pkg/machinery/config/contract.go), more",
		"talhelper v3.1.16, pkg/config": "[talhelper v3.1.16, " +
			"pkg/config](https://github.com/budimanjojo/talhelper/blob/v3.1.16/pkg/config)",
		"siderolabs/talos: internal/app/apid; RFC 6890": "[siderolabs/talos: internal/app/apid](https://github.com/siderolabs/talos/blob/HEAD/internal/app/apid); " +
			"[RFC 6890](https://www.rfc-editor.org/rfc/rfc6890)",
		"Linux, ip-route(8)":              "[Linux, ip-route(8)](https://man7.org/linux/man-pages/man8/ip-route.8.html)",
		"talos-mage: docs/reliability.md": "[talos-mage: docs/reliability.md](reliability.md)",
		"operating system":                "operating system",
	} {
		require.Equal(t, linked, sourcelinks.Of(source))
	}
}

func TestEverySourceCanBeRead(t *testing.T) {
	t.Parallel()

	target := regexp.MustCompile(`\]\(([^)]+)\)`)
	// the operating system
	nowhere := map[diagnosis.ID]bool{diagnosis.FileUnreadable: true, diagnosis.FileUnwritable: true}

	for _, entry := range diagnosis.Catalogue() {
		links := target.FindAllStringSubmatch(sourcelinks.Of(entry.Source), -1)
		if !nowhere[entry.ID] {
			require.NotEmpty(t, links,
				"%s: %q names nothing that can be read: write owner/repository#number, or a form of sourcelinks", entry.ID,
				entry.Source)
		}

		for _, link := range links {
			_, err := url.Parse(link[1])
			require.NoError(t, err)
		}
	}
}
