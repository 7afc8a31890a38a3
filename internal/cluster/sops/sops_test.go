package sops_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/program"
	"github.com/talos-mage/talos-mage/internal/cluster/sops"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

const plain = "cluster:\n    id: 0123456789abcdef\n    secret: fedcba9876543210\n"

// encrypted is what a file of two recipients looks like.
const encrypted = `cluster: {id: "ENC[AES256_GCM,data:x,iv:x,tag:x,type:str]"}
sops:
  age:
    - recipient: age1first
      enc: x
    - recipient: age1second
      enc: x
  pgp:
    - fp: 0123456789ABCDEF
  kms:
    - arn: arn:aws:kms:example
`

// user is a folder with a home, and an environment of nothing else.
type user struct {
	sops.Sops
	home string
}

func newUser(t *testing.T, variables ...string) user {
	t.Helper()

	home := t.TempDir()
	folder := filepath.Join(home, "repository", "talos")
	require.NoError(t, os.MkdirAll(folder, 0o700))

	return user{home: home, Sops: sops.Sops{
		KeyFile: filepath.Join(home, "repository", "age.key"),
		Programs: program.Runner{Dir: folder,
			Environ: append([]string{"HOME=" + home, "PATH=" + filepath.Join(home, "bin")}, variables...)},
	}}
}

// program makes a program of the user's.
func (u user) program(t *testing.T, name, script string) {
	t.Helper()

	if runtime.GOOS == "windows" {
		t.Skip("this system runs no shell scripts")
	}

	require.NoError(t, os.MkdirAll(filepath.Join(u.home, "bin"), 0o755))
	require.NoError(t, tool.WriteProgram(filepath.Join(u.home, "bin", name),
		[]byte("#!/bin/sh\nPATH=/usr/bin:/bin\n"+script+"\n")))
}

// withRealSops gives the user the real sops and a key. The test is skipped where there is none.
func (u *user) withRealSops(t *testing.T) (recipient string) {
	t.Helper()

	program, keygen := tool.Find(t, "sops"), tool.Find(t, "age-keygen")

	key, err := exec.Command(keygen).Output()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(u.KeyFile, key, 0o600))

	u.Programs.Environ = append(u.Programs.Environ, "PATH="+filepath.Dir(program))

	return regexp.MustCompile(`age1\w+`).FindString(string(key))
}

func (u user) rules(t *testing.T, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(u.home, "repository", ".sops.yaml"), []byte(text), 0o600))
}

func problem(t *testing.T, err error, id diagnosis.ID) *diagnosis.Problem {
	t.Helper()

	found, ok := diagnosis.AsProblem(err)
	require.True(t, ok, "%v", err)
	require.Equal(t, id, found.ID)
	require.Equal(t, diagnosis.ExitBadInput, found.ExitCode())

	return found
}

func TestAnEncryptedFileIsKnownByItsMetadata(t *testing.T) {
	t.Parallel()

	require.True(t, sops.Encrypted([]byte(encrypted)))
	require.Equal(t, []string{"age1first", "age1second", "0123456789ABCDEF", "arn:aws:kms:example"},
		sops.Recipients([]byte(encrypted)))

	for _, text := range []string{"", plain, "sops: yes", "- sops: {}", "\t", "a: ENC[AES256_GCM,data:x]"} {
		require.False(t, sops.Encrypted([]byte(text)), text)
		require.Empty(t, sops.Recipients([]byte(text)), text)
	}
}

func TestRulesAreFoundAsSopsFindsThem(t *testing.T) {
	t.Parallel()

	u := newUser(t)
	require.Empty(t, u.Rules())

	u.rules(t, "creation_rules: []\n")
	require.Equal(t, filepath.Join(u.home, "repository", ".sops.yaml"), u.Rules())

	require.Equal(t, "SOPS_AGE_RECIPIENTS", newUser(t, "SOPS_AGE_RECIPIENTS=age1x").Rules())
	require.Equal(t, "/elsewhere.yaml", newUser(t, "SOPS_CONFIG=/elsewhere.yaml").Rules())
}

func TestAFileThatCannotBeDecryptedNamesItsRecipientsAndThePlacesOfKeys(t *testing.T) {
	t.Parallel()

	u := newUser(t)
	u.program(t, "sops", `cat >&2 <<'END'
Failed to get the data key required to decrypt the SOPS file.

Group 0: FAILED
  age1first: FAILED
    - | failed to load age identities. Did not find keys in
      | locations 'SOPS_AGE_KEY'.

Recovery failed because no master key was able to decrypt the file.
END
exit 128`)

	_, err := u.Decrypt(t.Context(), "talos/talsecret.sops.yaml", []byte(encrypted))
	found := problem(t, err, diagnosis.SecretsUndecryptable)
	require.Equal(t, "talos/talsecret.sops.yaml can't be decrypted: it is encrypted for age1first, age1second, "+
		"0123456789ABCDEF, arn:aws:kms:example; "+
		"a key was looked for in SOPS_AGE_KEY_FILE ("+u.KeyFile+": not there), SOPS_AGE_KEY (not set), "+
		filepath.Join(u.home, ".config", "sops", "age", "keys.txt")+": not there; sops says: failed to load age identities",
		notOnDarwin(found.Cause))
	require.Contains(t, found.Next, "SOPS_AGE_KEY_FILE")
}

// notOnDarwin takes the place of the user's settings for the usual one.
func notOnDarwin(text string) string {
	return strings.ReplaceAll(text, "Library/Application Support", ".config")
}

func TestAPathInThePlaceOfAKeyIsRecognised(t *testing.T) {
	t.Parallel()

	u := newUser(t, "SOPS_AGE_KEY=/home/op/age.txt")
	u.program(t, "sops", "exit 128")

	_, err := u.Decrypt(t.Context(), "x.yaml", []byte(encrypted))
	found := problem(t, err, diagnosis.SecretsUndecryptable)
	require.Equal(t, "SOPS_AGE_KEY holds no key; if it is the path of one, it belongs into SOPS_AGE_KEY_FILE", found.Next)
	require.NotContains(t, found.Cause, "/home/op", "a variable for a key is not shown, whatever it holds")
}

func TestAMissingSopsIsNamed(t *testing.T) {
	t.Parallel()

	u := newUser(t)
	u.rules(t, "creation_rules: []\n")

	_, err := u.Decrypt(t.Context(), "x.yaml", []byte(encrypted))
	require.Contains(t, problem(t, err, diagnosis.ProgramMissing).Cause, "x.yaml is encrypted")

	_, err = u.Encrypt(t.Context(), "x.yaml", []byte(plain))
	require.Contains(t, problem(t, err, diagnosis.ProgramMissing).Cause, ".sops.yaml")
	require.False(t, u.Installed())
}

func TestTextThatIsNotReallyEncryptedIsRefused(t *testing.T) {
	t.Parallel()

	u := newUser(t)
	u.rules(t, "creation_rules: []\n")
	u.program(t, "sops", "cat; echo 'sops: {version: 3}'")

	got, err := u.Encrypt(t.Context(), "talsecret.sops.yaml", []byte(plain))
	require.Contains(t, problem(t, err, diagnosis.SecretsNotEncryptable).Cause, "leaves its values in the clear")
	require.Nil(t, got)
}

// Someone who pastes a key where its file's path belongs is not shown it again, by us or by sops.
func TestAPastedKeyIsNotShown(t *testing.T) {
	t.Parallel()

	const key = "AGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQ"

	u := newUser(t)
	u.KeyFile = filepath.Join("/r", key)
	u.program(t, "sops", "echo \"open /r/"+key+": no such file or directory\" >&2; exit 128")

	_, err := u.Decrypt(t.Context(), "x.yaml", []byte(encrypted))
	cause := problem(t, err, diagnosis.SecretsUndecryptable).Cause
	require.Contains(t, cause, "SOPS_AGE_KEY_FILE (set to a key, not to the path of its file)")
	require.NotContains(t, cause, "QQQ")
	require.NotContains(t, report.Scrub("x "+key+" y"), "QQQ")
}

func TestPlaintextReachesSopsThroughAPipeOnly(t *testing.T) {
	t.Parallel()

	u := newUser(t)
	u.rules(t, "creation_rules: []\n")
	u.program(t, "sops", `echo "arguments: $*"; if grep -q 0123456789abcdef; then echo read: yes; fi`)

	got, err := u.Encrypt(t.Context(), "/r/talsecret.sops.yaml", []byte(plain))
	require.NoError(t, err)
	require.Equal(t, "arguments: encrypt --filename-override /r/talsecret.sops.yaml --input-type yaml --output-type "+
		"yaml /dev/stdin\nread: yes\n", string(got))
}

func TestAStoppedRunIsNoFailureOfSops(t *testing.T) {
	t.Parallel()

	u := newUser(t)
	u.program(t, "sops", "sleep 60")

	ctx, stop := context.WithCancel(t.Context())
	stop()

	_, err := u.Decrypt(ctx, "x.yaml", []byte(encrypted))
	require.ErrorIs(t, err, context.Canceled)
}

func TestTheRealSops(t *testing.T) {
	t.Parallel()

	u := newUser(t)
	recipient := u.withRealSops(t)
	path := filepath.Join(u.Programs.Dir, "talsecret.sops.yaml")
	rule := func(pattern, more string) string {
		return fmt.Sprintf("creation_rules:\n  - path_regex: %s\n    age: %s\n%s", pattern, recipient, more)
	}

	u.rules(t, rule(`other\.yaml$`, ""))
	_, err := u.Encrypt(t.Context(), path, []byte(plain))
	require.Contains(t, problem(t, err, diagnosis.SecretsNotEncryptable).Cause, "no matching creation rules found")

	u.rules(t, rule(`\.sops\.yaml$`, "    encrypted_regex: ^(data|stringData)$\n"))
	_, err = u.Encrypt(t.Context(), path, []byte(plain))
	require.Contains(t, problem(t, err, diagnosis.SecretsNotEncryptable).Cause, "leaves its values in the clear")

	u.rules(t, rule(`talos/talsecret\.sops\.yaml$`, ""))
	sealed, err := u.Encrypt(t.Context(), path, []byte(plain))
	require.NoError(t, err)
	require.True(t, sops.Encrypted(sealed))
	require.Equal(t, []string{recipient}, sops.Recipients(sealed))

	// The key's file is not named to sops yet.
	_, err = u.Decrypt(t.Context(), path, sealed)
	require.Contains(t, problem(t, err, diagnosis.SecretsUndecryptable).Cause, "it is encrypted for "+recipient)

	u.Programs.Environ = append(u.Programs.Environ, "SOPS_AGE_KEY_FILE="+u.KeyFile)
	opened, err := u.Decrypt(t.Context(), path, sealed)
	require.NoError(t, err)
	require.Equal(t, plain, string(opened))

	// What takes its place has its recipients, whatever the rules say.
	u.rules(t, rule("", "    encrypted_regex: ^(data|stringData)$\n"))

	again, err := u.EncryptAgain(t.Context(), path, []byte("other: fedcba9876543210\n---\nmore: 0123456789abcdef\n"), sealed)
	require.NoError(t, err)
	require.Equal(t, []string{recipient}, sops.Recipients(again))

	opened, err = u.Decrypt(t.Context(), path, again)
	require.NoError(t, err)
	require.Equal(t, "other: fedcba9876543210\n---\nmore: 0123456789abcdef\n", string(opened))

	_, err = u.EncryptAgain(t.Context(), path, []byte(plain), []byte(encrypted))
	require.Contains(t, problem(t, err, diagnosis.SecretsNotEncryptable).Cause, "its part `sops` has kms")
}
