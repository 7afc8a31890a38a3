package talosconfig_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/talos/talosconfig"
)

func TestAClientIsReplacedWhereItStands(t *testing.T) {
	t.Parallel()

	crt, key := base64.StdEncoding.EncodeToString([]byte("new crt")), base64.StdEncoding.EncodeToString([]byte("new key"))

	for name, test := range map[string]struct{ text, want string }{
		"as talosctl writes it": {
			"context: home\ncontexts:\n    home:\n        crt: QQ==\n        key: Qg==\n    work:\n        crt: QQ==\n        key: Qg==\n",
			"context: home\ncontexts:\n    home:\n        crt: CRT\n        key: KEY\n    work:\n        crt: QQ==\n        key: Qg==\n",
		},
		"with quotes and remarks": {
			"contexts: # all\n  work: {}\n  home: # mine\n    key: \"Qg==\" # secret\n    other: 1\n    crt: 'QQ=='\n",
			"contexts: # all\n  work: {}\n  home: # mine\n    key: \"KEY\" # secret\n    other: 1\n    crt: 'CRT'\n",
		},
		"on one line": {
			"contexts: {home: {crt: QQ==, key: Qg==}}",
			"contexts: {home: {crt: CRT, key: KEY}}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got, err := talosconfig.ReplaceClient([]byte(test.text), "home", []byte("new crt"), []byte("new key"))
			require.NoError(t, err)
			require.Equal(t, strings.NewReplacer("CRT", crt, "KEY", key).Replace(test.want), string(got))
		})
	}

	for _, text := range []string{"", "\t", "contexts: {home: null}", "contexts: {home: {crt: QQ==}}",
		"contexts: {home: {crt: QQ==, key: QQ==}}", "contexts:\n  home:\n    crt: >-\n      QQ\n      ==\n    key: Qg==\n"} {
		_, err := talosconfig.ReplaceClient([]byte(text), "home", []byte("new crt"), []byte("new key"))
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), "Qg==")
	}
}
