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

// read writes files and reads them as a module; paths are shown from there.
func read(t *testing.T, files map[string]string) (*tofu.Module, error) {
	t.Helper()

	folder := t.TempDir()
	for name, text := range files {
		path := filepath.Join(folder, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}

	return tofu.Read(folder, func(path string) string {
		return strings.TrimPrefix(path,
			folder+string(filepath.Separator))
	})
}

// resources are those of a type.
func resources(t *testing.T, module *tofu.Module, kind string) []tofu.Resource {
	t.Helper()

	found, err := module.Resources(kind)
	require.NoError(t, err)

	return found
}

// said is a value in short: its text, "null", or "?" and why it can't be told.
func said(value tofu.Value) string {
	switch {
	case value.Null:
		return "null"
	case value.Known:
		return value.Text
	default:
		return "? " + value.Why
	}
}

const declarations = `variable "vm" { default = { bios = "ovmf", cores = 4, balloon = 0 } }
variable "names" { default = ["cp1", "cp2"] }
variable "nodes" { default = [{ name = "cp1", memory = 8192 }, { name = "w1", memory = 16384 }] }
variable "given" { type = string }
variable "typed" {
  type    = list(object({ name = string, cores = optional(number, 2) }))
  default = [{ name = "cp1" }, { name = "w1", cores = "8" }]
}
variable "mistyped" {
  type    = number
  default = "many"
}
locals {
  bios  = var.vm.bios
  loop  = local.loop
  sizes = { for node in var.nodes : node.name => node.memory }
}
`

func TestValues(t *testing.T) {
	t.Parallel()

	for expression, want := range map[string]string{
		`"ovmf"`:                            "ovmf",
		`4`:                                 "4",
		`-1`:                                "-1",
		`true`:                              "true",
		`null`:                              "null",
		`([1, 2,])`:                         "? it is no text or number (main.tf:2)",
		"jsonencode([\n  1, # one\n  2\n])": "[1,2]",
		"jsonencode({\n  a = 1\n\n  // two\n  b = { c = 3 }\n})": `{"a":1,"b":{"c":3}}`,
		`jsonencode({ (local.bios) = 1, "b" : 2 })`:              `{"b":2,"ovmf":1}`,
		`var.vm.bios`:                             "ovmf",
		`var.vm["bios"]`:                          "ovmf",
		`var["vm"].bios`:                          "ovmf",
		`local.bios`:                              "ovmf",
		`(var.vm.cores)`:                          "4",
		`"${var.vm.bios}"`:                        "ovmf",
		`"vm-${var.vm.cores}-${local.bios}"`:      "vm-4-ovmf",
		`"%{ if var.vm.cores > 2 }big%{ endif }"`: "big",
		`"a \"b\" \\ c"`:                          `a "b" \ c`,
		"<<-EOT\n  one\n  EOT\n":                  "one\n",
		`jsonencode(local.sizes)`:                 `{"cp1":8192,"w1":16384}`,
		`join(",", [for n in var.names : "${n}.example"])`:     "cp1.example,cp2.example",
		`join(",", [for n in var.names : n if n != "cp1"])`:    "cp2",
		`join(",", [for i, n in var.names : i == 0 ? n : ""])`: "cp1,",
		`var.nodes[1].name`:                            "w1",
		`join(",", var.nodes[*].name)`:                 "cp1,w1",
		`var.vm.cores * 2`:                             "8",
		`var.vm.cores > 2 && !false ? "big" : "small"`: "big",
		`var.typed[0].cores`:                           "2",
		`var.typed[1].cores + 1`:                       "9",
		`length(toset(var.names))`:                     "2",
		`length("abc")`:                                "3",
		`coalesce(null, "", 3)`:                        "3",
		`lookup(var.vm, "cores", 2)`:                   "4",
		`lookup(var.vm, "cores")`:                      "4",
		`lookup(var.vm, "numa", false)`:                "false",
		`merge(var.vm, { cores = 8 }).cores`:           "8",
		`max(var.vm.cores, 2)`:                         "4",
		`upper(format("%s-%02d", var.vm.bios, 1))`:     "OVMF-01",
		`try(var.vm.cores, 2)`:                         "4",
		`try(var.vm.absent, 2)`:                        "2",
		`can(var.vm.absent) ? 1 : 2`:                   "2",

		// What only OpenTofu can tell, and what it would not take.
		`var.given`:                        "? var.given has no value (declarations.tf:4)",
		`"${var.given}"`:                   "? var.given has no value (declarations.tf:4)",
		`coalesce(null, var.given)`:        "? var.given has no value (declarations.tf:4)",
		`merge(var.vm, data.a.b).bios`:     "? data.a is told when OpenTofu runs (main.tf:2)",
		`var.given == "" ? 1 : 2`:          "? var.given has no value (declarations.tf:4)",
		`[for n in data.a.b : n][0]`:       "? data.a is told when OpenTofu runs (main.tf:2)",
		`{ (var.given) = 1 }.a`:            "? var.given has no value (declarations.tf:4)",
		`var.nowhere.else`:                 "? var.nowhere is not declared (main.tf:2)",
		`var.mistyped`:                     "? the value of var.mistyped has not its type (declarations.tf:10)",
		`local.loop`:                       "? local.loop needs itself (declarations.tf:15)",
		`local.nothing`:                    "? there is no local.nothing",
		`module.nothing.out`:               "? there is no module nothing",
		`data.a.b.c`:                       "? data.a is told when OpenTofu runs (main.tf:2)",
		`other_thing.a.id`:                 "? other_thing.a is told when OpenTofu runs (main.tf:2)",
		`try(data.a.b, 2)`:                 "? data.a is told when OpenTofu runs (main.tf:2)",
		`file("secret")`:                   "? the function file is not evaluated here (main.tf:2)",
		`try(file ("secret"), 2)`:          "? the function file is not evaluated here (main.tf:2)",
		`provider::corefunc::str_snake(1)`: "? the function provider::corefunc::str_snake is not evaluated here (main.tf:2)",
		`lookup(var.vm, "numa")`: "? main.tf:2:27: Invalid function argument: Invalid value for \"key\" " +
			"parameter: there is no such key, and no default.",
		`var.vm.absent`: "? main.tf:2:17: Unsupported attribute: This object does not have an attribute named " +
			`"absent".`,
		`1 + "many"`: "? main.tf:2:15: Invalid operand: Unsuitable value for right operand: a number is required.",
	} {
		t.Run(fmt.Sprintf("%.60s", expression), func(t *testing.T) {
			t.Parallel()

			module, err := read(t, map[string]string{"declarations.tf": declarations,
				"main.tf": "resource \"x\" \"y\" {\n  value = " + expression + "\n  after = 1\n}\n"})
			require.NoError(t, err)

			found := resources(t, module, "x")
			require.Len(t, found, 1)

			value, set := found[0].Attribute("value")
			require.True(t, set)
			require.Equal(t, want, said(value))
			require.NotZero(t, value.At.Line)

			after, _ := found[0].Attribute("after")
			require.Equal(t, "1", after.Text, "what follows is read")
		})
	}
}

// A finding is shown where a person would change the value.
func TestAValueHasThePlaceWhereItIsWritten(t *testing.T) {
	t.Parallel()

	const list = `variable "nodes" {
  type = list(object({
    name  = string
    cores = number
  }))
}
locals { big = { for n in var.nodes : n.name => n if n.cores > 2 } }
`

	for expression, want := range map[string]string{
		`4`:                           "main.tf:2:11: value = 4",
		`"a-${var.vm.bios}"`:          `main.tf:2:11: value = "a-${var.vm.bios}"`,
		`var.vm.bios`:                 `declarations.tf:1:36: variable "vm" { default = { bios = "ovmf", cores = 4, balloon = 0 } }`,
		`"${local.bios}"`:             `declarations.tf:1:36: variable "vm" { default = { bios = "ovmf", cores = 4, balloon = 0 } }`,
		`try(var.vm.bios, "seabios")`: `declarations.tf:1:36: variable "vm" { default = { bios = "ovmf", cores = 4, balloon = 0 } }`,
		`var.vm.cores > 2 ? 1 : 2`:    "main.tf:2:11: value = var.vm.cores > 2 ? 1 : 2",
		`local.big["w1"].cores`:       `terraform.tfvars:3:26: { name = "w1", cores = 8 },`,
	} {
		t.Run(expression, func(t *testing.T) {
			t.Parallel()

			module, err := read(t, map[string]string{"declarations.tf": declarations,
				"listed.tf":        strings.ReplaceAll(list, "nodes", "listed"),
				"terraform.tfvars": "listed = [\n  { name = \"cp1\", cores = 1 },\n  { name = \"w1\", cores = 8 },\n]\n",
				"main.tf":          "resource \"x\" \"y\" {\n  value = " + expression + "\n}\n"})
			require.NoError(t, err)

			value, _ := resources(t, module, "x")[0].Attribute("value")
			require.True(t, value.Known, value.Why)
			require.Equal(t, want, fmt.Sprintf("%s:%d: %s", value.At, value.At.Column, value.At.Text))
		})
	}
}

func TestFilesOfValuesGoOverDefaultsInOrder(t *testing.T) {
	t.Parallel()

	module, err := read(t, map[string]string{
		"variables.tf": "variable \"a\" { default = 1 }\nvariable \"b\" { default = 1 }\nvariable \"c\" { " +
			"default = 1 }\nvariable \"d\" { default = 1 }\n" +
			"variable \"e\" {\n  default = 5\n  nullable = false\n}\nvariable \"f\" { default = 6 }\n",
		"terraform.tfvars":      "b = 2\nc = 2\nd = 2\ne = null\nf = null\n",
		"terraform.tfvars.json": `{"c": 3, "d": 3}`,
		"a.auto.tfvars":         "d = 4\n",
		"main.tofu": "resource \"x\" \"y\" {\n  a = var.a\n  b = var.b\n  c = var.c\n  d = var.d\n  e = " +
			"var.e\n  f = var.f\n}\n",
		"main.tf":       "resource \"x\" \"replaced\" {}\n",
		"unused.tfvars": "a = 9\n",
	})
	require.NoError(t, err)

	found := resources(t, module, "x")
	require.Len(t, found, 1)

	for name, want := range map[string]string{"a": "1 variables.tf:1", "b": "2 terraform.tfvars:1",
		"c": "3 terraform.tfvars.json:1", "d": "4 a.auto.tfvars:1", "e": "5 variables.tf:6",
		"f": "null terraform.tfvars:5"} {
		value, _ := found[0].Attribute(name)
		require.Equal(t, want, said(value)+" "+value.At.String())
	}
}

// shortly are resources with their keys, the memory of theirs, and whether they have disks.
func shortly(found []tofu.Resource) []string {
	var told []string

	for _, made := range found {
		words := []string{made.Name, made.Key}

		if name, set := made.Attribute("name"); set {
			words = append(words, said(name))
		}

		for _, kind := range []string{"memory", "disk"} {
			blocks, untold := made.Blocks(kind)
			for _, block := range blocks {
				size, _ := block.Attribute("size")
				words = append(words, kind, said(size))
			}

			if untold != "" {
				words = append(words, kind+" "+untold)
			}
		}

		if made.Several {
			words = append(words, "several")
		}

		told = append(told, strings.Join(words, " "))
	}

	return told
}

func TestInstances(t *testing.T) {
	t.Parallel()

	module, err := read(t, map[string]string{"main.tf": `
locals { nodes = { cp1 = { memory = 1 }, w1 = { memory = 2 } } }
resource "vm" "each" {
  for_each = local.nodes
  name     = each.key
  memory {
    size = each.value.memory
  }
  dynamic "disk" {
    for_each = each.key == "cp1" ? [] : [10, 20]
    content {
      size = disk.value
    }
  }
}
resource "vm" "set" {
  for_each = toset(["a", "b"])
  dynamic "disk" {
    for_each = { x = 1 }
    iterator = one
    content {
      size = "${each.value}${one.key}${one.value}"
    }
  }
}
resource "vm" "counted" {
  count = length(local.nodes)
  name  = "w${count.index + 1}"
}
resource "vm" "none" {
  count = local.nodes.cp1.memory > 1 ? 1 : 0
}
resource "vm" "unknown" {
  for_each = var.somewhere
  name     = each.key
  dynamic "disk" {
    for_each = var.somewhere
    content {}
  }
}
resource "vm" "uncounted" {
  count = var.somewhere
  name  = "w${count.index}"
  dynamic "disk" {}
}
resource "vm" "one" {}
resource "other" "one" {}
`})
	require.NoError(t, err)

	require.Equal(t, []string{
		"each cp1 cp1 memory 1",
		"each w1 w1 memory 2 disk 10 disk 20",
		"set a disk ax1",
		"set b disk bx1",
		"counted  w1 several",
		"counted  w2 several",
		"unknown  ? var.somewhere is not declared (main.tf:34) disk var.somewhere is not declared (main.tf:37) several",
		"uncounted  ? var.somewhere is not declared (main.tf:42) disk the dynamic block has no for_each or no content " +
			"(main.tf:44) several",
		"one ",
	}, shortly(resources(t, module, "vm")))
}

func TestJSONFiles(t *testing.T) {
	t.Parallel()

	module, err := read(t, map[string]string{"main.tf.json": `{
  "locals": {"nodes": {"cp1": {"memory": 1}}},
  "resource": {"vm": {"each": {
    "for_each": "${local.nodes}",
    "name": "${each.key}",
    "memory": {"size": "${each.value.memory + 1}"},
    "dynamic": {"disk": {"for_each": [10], "content": {"size": "${try(file(\"x\"), disk.value)}"}}}
  }}}
}`})
	require.NoError(t, err)

	require.Equal(t, []string{"each cp1 cp1 memory 2 disk ? the function file is not evaluated here (main.tf.json:7)"},
		shortly(resources(t, module, "vm")))
}

func TestLocalModules(t *testing.T) {
	t.Parallel()

	module, err := read(t, map[string]string{
		"main.tf": `
locals { base = 1024 }
module "names" {
  source = "./modules/names"
}
module "nodes" {
  source   = "./modules/node"
  for_each = { cp1 = 2, w1 = 4 }
  name     = each.key
  memory   = local.base * each.value
}
module "named" {
  source = "./modules/node"
  name   = module.names.first
}
module "elsewhere" {
  source = "acme/vm/proxmox"
}
resource "vm" "own" {
  name = module.nodes["cp1"].name
}
`,
		"modules/names/outputs.tf": "output \"first\" { value = \"n1\" }\n",
		"modules/node/main.tf": `
variable "name" { type = string }
variable "memory" { default = 512 }
module "deeper" {
  source = "../disk"
  size   = var.memory
}
resource "vm" "node" {
  name = var.name
  memory {
    size = var.memory
  }
}
`,
		"modules/disk/main.tf": "variable \"size\" {}\nresource \"vm\" \"disk\" {\n  disk {\n    size = var.size\n  }\n}\n",
	})
	require.NoError(t, err)

	require.Equal(t, []string{
		"own  ? what module nodes gives is not known (main.tf:6)",
		"node  cp1 memory 2048", "disk  disk 2048",
		"node  w1 memory 4096", "disk  disk 4096",
		"node  n1 memory 512", "disk  disk 512",
	}, shortly(resources(t, module, "vm")))

	require.Equal(t, []string{"module elsewhere (main.tf:16)"}, module.Unread())
}

func TestModulesThatCanNotBeReadHaveAPlace(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ source, want string }{
		"absent":  {`"./absent"`, "main.tf:1:1: module a: there is no folder ./absent"},
		"unknown": {"data.a.b", "main.tf:1:1: the source of module a is not known"},
		"itself":  {`"./"`, "main.tf:1:1: modules call modules too deep"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			module, err := read(t, map[string]string{"main.tf": "module \"a\" {\n  source = " + test.source + "\n}\n"})
			require.NoError(t, err)

			_, err = module.Resources("vm")
			require.EqualError(t, err, test.want)
		})
	}
}

func TestFilesThatAreNoneHaveAPlace(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ file, text, want string }{
		"open block":   {"main.tf", "resource \"a\" \"b\" {\n  x = 1\n", "main.tf:1:18: Unclosed configuration block"},
		"no attribute": {"main.tf", "= 1\n", "main.tf:1:1: Argument or block definition required"},
		"no brace":     {"main.tf", "resource \"a\" 3\n", "main.tf:1:14: Invalid block definition"},
		"no name":      {"main.tf", "resource \"a\" {}\n", "main.tf:1:14: Missing name for resource"},
		"open string":  {"main.tf", "a = \"a\n", "main.tf:1:7: Invalid multi-line string"},
		"JSON":         {"terraform.tfvars.json", "{", "terraform.tfvars.json:1:2: "},
		"tfvars":       {"terraform.tfvars", "a {\n", "terraform.tfvars:1:3: Unclosed configuration block"},
		"override": {"vm_override.tf", "resource \"a\" \"b\" {}\n",
			"vm_override.tf:1:1: override files are not understood"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, err := read(t, map[string]string{test.file: test.text})

			var mistake *tofu.Error

			require.ErrorAs(t, err, &mistake)
			require.ErrorContains(t, err, test.want)
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
		declarations, "resource \"x\" \"y\" {\n  for_each = toset([1])\n  dynamic \"b\" {\n    for_each = [1]\n  }\n}\n",
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

		found, err := module.Resources("x")
		if err != nil {
			return
		}

		for _, made := range found {
			made.Attribute("v")
			made.Blocks("b")
		}
	})
}
