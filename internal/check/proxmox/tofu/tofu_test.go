package tofu_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check/proxmox/tofu"
)

// read writes files and reads them as a module; paths are shown by their base.
func read(t *testing.T, files map[string]string) (*tofu.Module, error) {
	t.Helper()

	folder := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}

	return tofu.Read(folder, filepath.Base)
}

// said is a value in short: its text, "null", "?" for an unknown one, lists in brackets and objects in braces.
func said(value tofu.Value) string {
	switch value.Kind {
	case tofu.Null:
		return "null"
	case tofu.Scalar:
		return value.Text
	case tofu.List:
		var items []string
		for _, item := range value.Items {
			items = append(items, said(item))
		}

		return "[" + strings.Join(items, " ") + "]"
	case tofu.Object:
		var fields []string
		for _, field := range value.Fields {
			fields = append(fields, field.Name+"="+said(field.Value))
		}

		return "{" + strings.Join(fields, " ") + "}"
	case tofu.Unknown:
	}

	return "?"
}

func TestValues(t *testing.T) {
	t.Parallel()

	const declarations = `
variable "vm" { default = { bios = "ovmf", cores = 4, balloon = 0 } }
variable "names" { default = ["cp1", "cp2"] }
variable "nodes" { default = [{ name = "cp1", memory = 8192 }, { name = "w1", memory = 16384 }] }
variable "given" { type = string }
locals {
  bios  = var.vm.bios
  loop  = local.loop
  sizes = { for node in var.nodes : node.name => node.memory }
}
`

	for expression, want := range map[string]string{
		`"ovmf"`:                "ovmf",
		`4`:                     "4",
		`-1`:                    "-1",
		`true`:                  "true",
		`null`:                  "null",
		`[1, 2,]`:               "[1 2]",
		"[\n  1, # one\n  2\n]": "[1 2]",
		`{ a = 1, "b" : 2 }`:    "{a=1 b=2}",
		"{\n  a = 1\n\n  // two\n  b = { c = 3 }\n}": "{a=1 b={c=3}}",
		`{ (local.bios) = 1 }`:                       "{ovmf=1}",
		`var.vm.bios`:                                "ovmf",
		`var.vm["bios"]`:                             "ovmf",
		`local.bios`:                                 "ovmf",
		`(var.vm.cores)`:                             "4",
		`"${var.vm.bios}"`:                           "ovmf",
		`"vm-${var.vm.cores}-${local.bios}"`:         "vm-4-ovmf",
		`"a \"b\" \\ c"`:                             `a "b" \ c`,
		"<<-EOT\n  one\n  EOT\n":                     "  one\n",
		`local.sizes`:                                "{cp1=8192 w1=16384}",
		`[for n in var.names : "${n}.example"]`:      "[cp1.example cp2.example]",
		`[for i, n in var.names : i]`:                "[0 1]",
		`{ for k, v in local.sizes : k => v }`:       "{cp1=8192 w1=16384}",
		`toset(var.names)`:                           "[cp1 cp2]",
		`coalesce(null, 3)`:                          "3",
		`lookup(var.vm, "cores", 2)`:                 "4",
		`lookup(var.vm, "numa", false)`:              "false",
		`merge(var.vm, { cores = 8 }, { x = 1 })`:    "{bios=ovmf cores=8 balloon=0 x=1}",
		`try(var.vm.cores, 2)`:                       "4",

		// What only OpenTofu can tell.
		`var.given`:                              "?",
		`var.nowhere.else`:                       "?",
		`var.vm.absent`:                          "?",
		`local.loop`:                             "?",
		`data.a.b.c`:                             "?",
		`var.vm.cores * 2`:                       "?",
		`var.vm.cores > 2 ? 1 : 2`:               "?",
		`[for n in var.names : n if n != "cp1"]`: "?",
		`[for n in var.names : n == "" ? 1 : 2]`: "?",
		`{ for n in var.given : n => n }`:        "?",
		`file("secret")`:                         "?",
		`merge(var.vm, var.given)`:               "?",
		`"${var.given}-1"`:                       "?",
		`"%{ if true }a%{ endif }"`:              "?",
		`var.names[*]`:                           "?",
		strings.Repeat("[", 500) + strings.Repeat("]", 500): strings.Repeat("[", 100) + "?" + strings.Repeat("]", 100),
		`try(var.vm.absent, 2)`:                             "?",
	} {
		t.Run(fmt.Sprintf("%.60s", expression), func(t *testing.T) {
			t.Parallel()

			module, err := read(t, map[string]string{"main.tf": declarations + "resource \"x\" \"y\" {\n  value = " +
				expression + "\n  after = 1\n}\n"})
			require.NoError(t, err)

			made := module.Resources("x")
			require.Len(t, made, 1)

			value, set := made[0].Attribute("value")
			require.True(t, set)
			require.Equal(t, want, said(value))
			require.NotZero(t, value.At.Line)

			after, _ := made[0].Attribute("after")
			require.Equal(t, "1", after.Text, "what follows is read")
		})
	}
}

func TestFilesOfValuesGoOverDefaultsInOrder(t *testing.T) {
	t.Parallel()

	module, err := read(t, map[string]string{
		"variables.tf": "variable \"a\" { default = 1 }\nvariable \"b\" { default = 1 }\nvariable \"c\" { " +
			"default = 1 }\nvariable \"d\" { default = 1 }\n",
		"terraform.tfvars":      "b = 2\nc = 2\nd = 2\n",
		"terraform.tfvars.json": `{"c": 3, "d": 3}`,
		"a.auto.tfvars":         "d = 4\n",
		"main.tofu":             "resource \"x\" \"y\" {\n  list = [var.a, var.b, var.c, var.d]\n}\n",
		"unused.tfvars":         "a = 9\n",
	})
	require.NoError(t, err)

	list, _ := module.Resources("x")[0].Attribute("list")
	require.Equal(t, "[1 2 3 4]", said(list))
	require.Equal(t, tofu.Position{Path: "terraform.tfvars", Line: 1, Column: 5, Text: "b = 2"}, list.Items[1].At)
	require.Equal(t, "terraform.tfvars.json", list.Items[2].At.Path)
}

func TestInstances(t *testing.T) {
	t.Parallel()

	module, err := read(t, map[string]string{"main.tf": `
locals { nodes = { cp1 = { memory = 1 }, w1 = { memory = 2 } } }
resource "vm" "each" {
  for_each = local.nodes
  name     = each.key
  memory {
    dedicated = each.value.memory
  }
  dynamic "disk" {
    for_each = []
  }
}
resource "vm" "counted" {
  count = 3
}
resource "vm" "unknown" {
  for_each = var.somewhere
}
resource "vm" "one" {}
resource "other" "one" {}
`})
	require.NoError(t, err)

	var told []string

	for _, made := range module.Resources("vm") {
		words := []string{made.Name, made.Key}

		for _, memory := range made.Blocks("memory") {
			value, _ := memory.Attribute("dedicated")
			words = append(words, said(value))
		}

		if made.Several {
			words = append(words, "several")
		}

		require.Equal(t, made.Name == "each", made.Has("disk"))

		told = append(told, strings.Join(words, " "))
	}

	require.Equal(t, []string{"each cp1 1", "each w1 2", "counted  several", "unknown  several", "one "}, told)
}

func TestFilesThatAreNoneHaveAPlace(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ file, text, want string }{
		"open block": {"main.tf", "resource \"a\" \"b\" {\n  x = 1\n",
			"main.tf:3:1: ends too early: an attribute or a block was expected"},
		"no attribute": {"main.tf", "= 1\n", "main.tf:1:1: an attribute or a block was expected"},
		"no brace":     {"main.tf", "resource \"a\" 3\n", "main.tf:1:14: = or { was expected after resource"},
		"open string":  {"main.tf", "\"a\n", "main.tf:1:1: an attribute or a block was expected"},
		"nested":       {"main.tf", strings.Repeat("a {\n", 150), "main.tf:100:4: is nested too deep"},
		"JSON":         {"terraform.tfvars.json", "{", "terraform.tfvars.json: is not valid JSON"},
		"tfvars": {"terraform.tfvars", "a {\n",
			"terraform.tfvars:2:1: ends too early: an attribute or a block was expected"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, err := read(t, map[string]string{test.file: test.text})

			var mistake *tofu.Error

			require.ErrorAs(t, err, &mistake)
			require.EqualError(t, err, test.want)
		})
	}

	_, err := tofu.Read(filepath.Join(t.TempDir(), "absent"), filepath.Base)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Whatever a file holds, reading it ends, and without a panic.
func FuzzTofu(f *testing.F) {
	for _, seed := range []string{
		"a = 1\n", "resource \"x\" \"y\" {\n  v = { for a, b in c : a => b if d }\n}\n", "v = \"${x[\"a\"]}\"\n",
		"a = <<EOT\nEOT\n", "a = [[[[\n", "a = f(,)\n", "x = a.b[c\n", "locals { a = local.a }\n",
	} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, text string) {
		folder := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(folder, "main.tf"), []byte(text), 0o600))

		module, err := tofu.Read(folder, filepath.Base)
		if err != nil {
			return
		}

		for _, made := range module.Resources("x") {
			made.Attribute("v")
			made.Has("b")
		}
	})
}
