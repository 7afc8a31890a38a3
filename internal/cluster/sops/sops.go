// Package sops encrypts and decrypts files with the user's sops program, keys and rules. Plaintext goes through pipes
// and is never written anywhere.
package sops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/program"
	"github.com/talos-mage/talos-mage/internal/base/secrettext"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
)

const (
	name = "sops"
	// rulesFile is looked for in the working directory and above it. Source: getsops/sops, config/config.go.
	rulesFile = ".sops.yaml"
)

// recipientVariables name keys to encrypt for where there are no rules. Source: getsops/sops, README, "Encrypting
// using".
var recipientVariables = []string{
	"SOPS_AGE_RECIPIENTS", "SOPS_PGP_FP", "SOPS_KMS_ARN", "SOPS_GCP_KMS_IDS", "SOPS_AZURE_KEYVAULT_URLS",
	"SOPS_VAULT_URIS",
}

// Sops is the user's sops.
type Sops struct {
	// Programs is where sops is found, and how it is run. Its folder is where sops begins to look for rules.
	Programs program.Runner
	// KeyFile is where the age key is expected; a message names it also when there is nothing and Programs was not told of
	// it.
	KeyFile string
}

// Encrypted reports whether a YAML text is one that sops encrypted: such texts have a top-level key "sops".
func Encrypted(data []byte) bool { return metadataOf(data) != nil }

// Installed reports whether there is a sops at all.
func (s Sops) Installed() bool {
	_, found := s.Programs.Find(name)

	return found
}

// Rules says what tells sops how to encrypt: the path of the nearest .sops.yaml, or the name of a variable with
// recipients. Empty if there is nothing.
func (s Sops) Rules() string {
	if path := s.Programs.Variable("SOPS_CONFIG"); path != "" {
		return path
	}

	for dir := s.Programs.Dir; ; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, rulesFile)
		if _, err := os.Stat(path); err == nil {
			return path
		}

		if dir == filepath.Dir(dir) {
			break
		}
	}

	for _, variable := range recipientVariables {
		if s.Programs.Variable(variable) != "" {
			return variable
		}
	}

	return ""
}

// Decrypt gives the plaintext of a file's content, in the form that its name's ending stands for. An error is a
// *diagnosis.Problem that names the file's recipients and where a key was looked for.
func (s Sops) Decrypt(ctx context.Context, path string, data []byte) ([]byte, error) {
	form := formOf(path)
	plain, err := s.Programs.Run(ctx, data, name, "decrypt", "--input-type", form, "--output-type", form, "/dev/stdin")

	var failure *program.Failure

	switch {
	case err == nil:
		return plain, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, program.ErrMissing):
		return nil, missing(path+" is encrypted", err)
	case errors.As(err, &failure):
		return nil, s.undecryptable(path, data, failure)
	default:
		return nil, fmt.Errorf("decrypt %s: %w", path, err)
	}
}

// formOf is what sops calls the form of a file. Source: getsops/sops, cmd/sops/formats/formats.go.
func formOf(path string) string {
	switch filepath.Ext(path) {
	case ".json":
		return "json"
	case ".env":
		return "dotenv"
	case ".ini":
		return "ini"
	default:
		return "yaml"
	}
}

// Encrypt gives the ciphertext of a YAML text by the rules for a file at path. Text in which a value of the plaintext
// can still be read is refused: a rule made for other files, as encrypted_regex of Kubernetes secrets, would encrypt
// nothing of this one.
func (s Sops) Encrypt(ctx context.Context, path string, plain []byte) ([]byte, error) {
	encrypted, err := s.Programs.Run(ctx, plain, name, "encrypt", "--filename-override", path, "--input-type", "yaml",
		"--output-type", "yaml", "/dev/stdin")

	var failure *program.Failure

	switch {
	case err == nil && leaks(plain, encrypted):
		return nil, unencryptable(path, s.Rules()+" leaves its values in the clear",
			"add a rule for this file that encrypts all values, before the others: path_regex, and no encrypted_regex", nil)
	case err == nil:
		return encrypted, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, program.ErrMissing):
		return nil, missing(path+" is to be encrypted, as "+s.Rules()+" says", err)
	case errors.As(err, &failure):
		return nil, unencryptable(path, "sops, with "+s.Rules()+", says: "+plainly(failure), "correct the rules", err)
	default:
		return nil, fmt.Errorf("encrypt %s: %w", path, err)
	}
}

// EncryptAgain gives the ciphertext of a YAML text for the recipients of a file that it takes the place of, whatever
// the rules say of others. Only a file whose values are all encrypted, for age and PGP keys, has such a successor.
func (s Sops) EncryptAgain(ctx context.Context, path string, plain, former []byte) ([]byte, error) {
	var age, pgp []string

	metadata := metadataOf(former)
	if key := unusual(metadata); key != "" {
		return nil, unencryptable(path, "its part `sops` has "+key+", and its values can't be encrypted anew as they are",
			"sops decrypt -i "+path+", then the same command with -dirty, then sops encrypt -i "+path, nil)
	}

	collect(metadata, "recipient", &age)
	collect(metadata, "fp", &pgp)

	encrypted, err := s.Programs.Run(ctx, plain, name, "--config", os.DevNull, "encrypt", "--age", strings.Join(age, ","),
		"--pgp", strings.Join(pgp, ","), "--filename-override", path, "--input-type", "yaml", "--output-type", "yaml",
		"/dev/stdin")

	var failure *program.Failure

	switch {
	case err == nil && leaks(plain, encrypted):
		return nil, unencryptable(path, "sops leaves values in the clear", "encrypt it by hand", nil)
	case err == nil:
		return encrypted, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.As(err, &failure):
		return nil, unencryptable(path, "sops says: "+plainly(failure), "bring the keys of its recipients", err)
	default:
		return nil, fmt.Errorf("encrypt %s: %w", path, err)
	}
}

// unusual is a key of a file's metadata that is more than recipients, age and PGP keys; empty if there is none.
func unusual(metadata *yaml.Node) string {
	if metadata == nil {
		return "nothing"
	}

	for i := 0; i+1 < len(metadata.Content); i += 2 {
		key, value := metadata.Content[i].Value, metadata.Content[i+1]
		isEmpty := len(value.Content) == 0 && value.Value == ""

		switch key {
		case "age", "pgp", "lastmodified", "mac", "version":
		case "unencrypted_suffix":
			if value.Value != "_unencrypted" {
				return key
			}
		default:
			if !isEmpty {
				return key
			}
		}
	}

	return ""
}

func missing(why string, err error) *diagnosis.Problem {
	return diagnosis.NewProblem(diagnosis.ProgramMissing, "sops is not on the PATH, and "+why,
		"install sops (https://getsops.io), then run the same command again").From(err)
}

func unencryptable(path, why, next string, err error) *diagnosis.Problem {
	return diagnosis.NewProblem(diagnosis.SecretsNotEncryptable, path+" was not written: "+why, next).From(err)
}

func (s Sops) undecryptable(path string, data []byte, failure *program.Failure) *diagnosis.Problem {
	cause := fmt.Sprintf("%s can't be decrypted: it is encrypted for %s; a key was looked for in %s; sops says: %s",
		path, strings.Join(orNobody(Recipients(data)), ", "), strings.Join(s.places(), ", "), plainly(failure))
	next := "bring the key of one of these recipients, and set SOPS_AGE_KEY_FILE to where it is"

	if key := s.Programs.Variable("SOPS_AGE_KEY"); key != "" && !strings.Contains(key, "AGE-") {
		next = "SOPS_AGE_KEY holds no key; if it is the path of one, it belongs into SOPS_AGE_KEY_FILE"
	}

	return diagnosis.NewProblem(diagnosis.SecretsUndecryptable, cause, next).From(failure)
}

func orNobody(recipients []string) []string {
	if len(recipients) == 0 {
		return []string{"nobody that the file names"}
	}

	return recipients
}

// places are where sops looks for an age key, each with what is there. Source: getsops/sops, age/keysource.go.
func (s Sops) places() []string {
	keyFile := s.Programs.Variable("SOPS_AGE_KEY_FILE")
	if keyFile == "" {
		keyFile = s.KeyFile
	}

	places := []string{"SOPS_AGE_KEY_FILE (" + file(keyFile) + ")", "SOPS_AGE_KEY (" + s.set("SOPS_AGE_KEY") + ")"}

	if home := s.Programs.Variable("HOME"); home != "" {
		config := s.Programs.Variable("XDG_CONFIG_HOME")
		if config == "" {
			config = configFolder(home)
		}

		places = append(places, file(filepath.Join(config, "sops", "age", "keys.txt")))
	}

	return places
}

func (s Sops) set(variable string) string {
	if s.Programs.Variable(variable) == "" {
		return "not set"
	}

	return "set"
}

func file(path string) string {
	if path == "" {
		return "not set"
	}

	if secrettext.LooksLikeKeyInPath(path) {
		return "set to a key, not to the path of its file"
	}

	if _, err := os.Stat(path); err != nil {
		return path + ": not there"
	}

	return path
}

// plainly is what sops complained about, on one line: its boxes and advice are left out.
func plainly(failure *program.Failure) string {
	text := report.Scrub(failure.Complaint)

	if _, boxed, found := strings.Cut(text, "- | "); found {
		text = boxed
	}

	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "|", " ")), " ")

	for _, advice := range []string{" Did not find keys in", " Recovery failed because"} {
		text, _, _ = strings.Cut(text, advice)
	}

	if text == "" {
		return failure.Err.Error()
	}

	return strings.TrimSuffix(text, ".")
}

// Recipients are those that a file is encrypted for, as its metadata names them: age and PGP keys, and the keys of
// cloud services and vaults.
func Recipients(data []byte) []string {
	var recipients []string

	for _, key := range []string{"recipient", "fp", "arn", "resource_id", "vault_url", "vault_address"} {
		collect(metadataOf(data), key, &recipients)
	}

	return recipients
}

func collect(node *yaml.Node, key string, into *[]string) {
	if node == nil {
		return
	}

	for i, child := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 1 && node.Content[i-1].Value == key &&
			!slices.Contains(*into, child.Value) {
			*into = append(*into, child.Value)
		}

		collect(child, key, into)
	}
}

// metadataOf is what sops keeps in a file; nil if it is not encrypted.
func metadataOf(data []byte) *yaml.Node {
	root := parse(data)
	if root == nil || root.Kind != yaml.MappingNode {
		return nil
	}

	for i := 0; i+1 < len(root.Content); i += 2 {
		if value := root.Content[i+1]; root.Content[i].Value == name && value.Kind == yaml.MappingNode {
			return value
		}
	}

	return nil
}

func parse(data []byte) (root *yaml.Node) {
	// The decoder panics at some hostile texts.
	defer func() {
		if recovered := recover(); recovered != nil {
			root = nil
		}
	}()

	var document yaml.Node

	if err := yaml.Unmarshal(data, &document); err != nil || len(document.Content) == 0 {
		return nil
	}

	return document.Content[0]
}

// shortest is the length of a value that can't stand in a ciphertext by chance.
const shortest = 12

// leaks reports whether a value of the plaintext can be read in the ciphertext.
func leaks(plain, encrypted []byte) bool {
	var readable func(*yaml.Node) bool

	readable = func(node *yaml.Node) bool {
		if node.Kind == yaml.ScalarNode {
			return len(node.Value) >= shortest && bytes.Contains(encrypted, []byte(node.Value))
		}

		for i, child := range node.Content {
			if isKey := node.Kind == yaml.MappingNode && i%2 == 0; !isKey && readable(child) {
				return true
			}
		}

		return false
	}

	root := parse(plain)

	return root == nil || readable(root)
}
