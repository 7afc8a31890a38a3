package report

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/test/fuzztest"
)

// pemKey makes a private key, as the ones in machine configs are.
func pemKey(t *testing.T) string {
	t.Helper()

	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)

	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)

	return string(pem.EncodeToMemory(&pem.Block{Type: "ED25519 PRIVATE KEY", Bytes: der}))
}

func TestScrubMasksSecrets(t *testing.T) {
	t.Parallel()

	key := pemKey(t)
	body := strings.Split(key, "\n")[1]
	encoded := base64.StdEncoding.EncodeToString([]byte(key))
	inJSON, err := json.Marshal(key)
	require.NoError(t, err)

	const token = "abcdef.0123456789abcdef"

	for name, tt := range map[string]struct{ text, secret, want string }{
		"a private key":         {"before\n" + key + "after", body, "before\n(masked)\nafter"},
		"a private key in JSON": {`{"key":` + string(inJSON) + `,"b":1}`, body, `{"key":"(masked)\n","b":1}`},
		"a private key that was cut off": {`{"key":"` + strings.ReplaceAll(key[:80], "\n", `\n`) + `","b":1}`, body[:20],
			`{"key":"(masked)","b":1}`},
		"a private key in JSON in JSON": {`{"a":"{\"key\":` + strings.ReplaceAll(string(inJSON)[1:len(inJSON)-1], `\n`, `\\n`) + `","b":1}`,
			body, `{"a":"{\"key\":(masked)\\n","b":1}`},
		"a token as a version":       {"is v" + token + ", and", token, "is v(masked), and"},
		"two private keys":           {key + key, body, "(masked)\n(masked)\n"},
		"a key in base64":            {"key: " + encoded + "\n", encoded[50:60], "key: (masked)\n"},
		"a key in base64, cut off":   {"crt and " + encoded[:101] + " …", encoded[50:60], "crt and (masked) …"},
		"a bootstrap token":          {"token: " + token, token, "token: (masked)"},
		"a token in quotes":          {`token="` + token + `"`, token, `token="(masked)"`},
		"a token at the end":         {"wrong token " + token + ".", token, "wrong token (masked)."},
		"tokens one after the other": {token + " " + token + " " + token, token, "(masked) (masked) (masked)"},
		"a token alone":              {token, token, "(masked)"},
		"a named secret": {
			"secretboxEncryptionSecret: MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=", "MTIz",
			"secretboxEncryptionSecret: (masked)",
		},
		"a named secret in JSON": {`{"clusterSecret":"MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0="}`, "MTIz",
			`{"clusterSecret":"(masked)"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got := Scrub(tt.text)
			require.NotContains(t, got, tt.secret)
			require.Equal(t, tt.want, got)
			require.Equal(t, got, Scrub(got), "masking again changes nothing")
		})
	}
}

// A terminal obeys none of what a text holds.
func TestScrubShowsWhatATerminalWouldObey(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"a\x1b[2Jb":            `a\x1b[2Jb`,
		"\x1b]0;title\a":       `\x1b]0;title\a`,
		"\x1b[31mred\x1b[0m":   `\x1b[31mred\x1b[0m`,
		"over\rwritten\b":      `over\rwritten\b`,
		"\x9b2J, no UTF-8":     `\x9b2J, no UTF-8`,
		"\u009b2J":             `\u009b2J`,
		"\u202etxt.exe":        `\u202etxt.exe`,
		"null\x00":             `null\x00`,
		"Käse → 東京 ✓\nnext\tx": "Käse → 東京 ✓\nnext\tx",
	} {
		require.Equal(t, want, Scrub(text))
		require.Equal(t, want, Scrub(want), "once more changes nothing")
	}

	painted := paint(true, red, "fail\x1b[2Jed") + " " + paint(true, green, "ok")
	require.Equal(t, "\x1b[31mfail\\x1b[2Jed\x1b[0m \x1b[32mok\x1b[0m", scrubPainted(painted, true))
	require.Equal(t, `\x1b[31mfail\x1b[2Jed\x1b[0m \x1b[32mok\x1b[0m`, scrubPainted(painted, false))
}

func TestScrubLeavesOtherTextAlone(t *testing.T) {
	t.Parallel()

	certificate := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: make([]byte, 300)}))

	for _, text := range []string{
		"cp1 (192.0.2.11): apply: connection refused [TM080]. Next: mage applySequential -node=cp1",
		"worker.example-domain-xyz.example.com",
		"abcdef.0123456789abcdef.example.com is a host name",
		"the token is wrong: the node was not let in",
		"secret: not found in the file",
		"/srv/lab/talos/clusterconfig/lab-control-plane-1.yaml",
		"ghcr.io/siderolabs/installer:v1.13.9@sha256:" + strings.Repeat("ab", 32),
		"fingerprint " + base64.StdEncoding.EncodeToString(make([]byte, 32)),
		base64.StdEncoding.EncodeToString([]byte(certificate)),
		certificate,
		"",
	} {
		require.Equal(t, text, Scrub(text))
	}
}

func FuzzScrubLeavesNoPrivateKey(f *testing.F) {
	f.Add("before ", " after")
	f.Add("-----BEGIN PRIVATE KEY-----", "-----END")
	f.Add("abcdef.", "\"")

	for _, data := range fuzztest.Seeds(f, ".golden", ".txt", ".yaml") {
		f.Add(string(data), "")
	}

	f.Fuzz(func(t *testing.T, before, after string) {
		const key = "-----BEGIN EC PRIVATE " +
			"KEY-----\nMHcCAQEEIIrYSSNQFaA2Hwf1duRSxKtLYX5CB04fSeQ6tF1aY/PuoAoGCCqGSM49\n-----END EC PRIVATE KEY-----\n"

		fuzztest.Bounded(t, func() {
			require.NotContains(t, Scrub(before+"\n"+key+after), "MHcCAQEEIIrYSSNQFaA2Hwf1duRSxKtLYX5CB04fSeQ6tF1aY")
		})
	})
}
