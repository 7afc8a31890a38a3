package proxmox_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check/proxmox"
)

const token = "audit@pve!mage=00000000-0000-4000-8000-000000000001"

// pve is an API with these guests, by id: a list entry and a configuration.
func pve(t *testing.T, list []map[string]any, configs map[string]map[string]any) *httptest.Server {
	t.Helper()

	answer := func(w http.ResponseWriter, data any) {
		if err := json.NewEncoder(w).Encode(map[string]any{"data": data}); err != nil {
			t.Errorf("answer: %v", err)
		}
	}

	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "PVEAPIToken="+token:
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/api2/json/cluster/resources" && r.URL.Query().Get("type") == "vm":
			answer(w, list)
		default:
			path := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/api2/json/nodes/pve1/qemu/"), "/config")
			if configs[path] == nil {
				w.WriteHeader(http.StatusInternalServerError)

				return
			}

			answer(w, configs[path])
		}
	}))
	t.Cleanup(server.Close)

	return server
}

func set(value string) proxmox.Setting { return proxmox.Setting{Value: value, Known: true} }

func all(string) bool { return true }

// ask asks hosts with the token that they know.
func ask(t *testing.T, wanted func(string) bool, endpoints ...string) ([]proxmox.VM, error) {
	t.Helper()

	apis, err := proxmox.APIs(endpoints, []string{token}, true)
	require.NoError(t, err)

	return proxmox.VMs(context.Background(), apis, wanted)
}

func TestMachinesOfTheAPI(t *testing.T) {
	t.Parallel()

	server := pve(t, []map[string]any{
		{"vmid": 102, "name": "w1", "node": "pve1", "type": "qemu"},
		{"vmid": 101, "name": "cp1", "node": "pve1", "type": "qemu", "template": 0},
		{"vmid": 900, "name": "template", "node": "pve1", "type": "qemu", "template": 1},
		{"vmid": 200, "name": "container", "node": "pve1", "type": "lxc"},
		{"vmid": 300, "name": "nas", "node": "pve1", "type": "qemu"},
	}, map[string]map[string]any{
		"101": {
			"bios": "ovmf", "machine": "pc-q35-9.0,viommu=virtio", "cpu": "host,flags=+aes", "cores": 4, "sockets": 2,
			"memory": "8192", "balloon": 0,
			"agent": "enabled=1,fstrim_cloned_disks=1", "hotplug": "disk,memory",
			"scsihw": "virtio-scsi-pci", "net1": "model=e1000,macaddr=02:00:00:00:00:0A",
			"net0":     "virtio=02:00:00:00:00:01,bridge=vmbr0",
			"smbios1":  "uuid=00000000-0000-4000-8000-00000000000A,base64=1",
			"efidisk0": "local:vm-101-disk-0,efitype=4m,pre-enrolled-keys=1,size=4M",
		},
		"102": {"cpu": "cputype=kvm64", "args": "-cpu kvm64,+cx16", "efidisk0": "local:vm-102-disk-0,size=4M"},
	})

	machines, err := ask(t, func(name string) bool { return name != "nas" }, server.URL+"/", server.URL+"/api2/json/")
	require.NoError(t, err)
	require.Equal(t, []proxmox.VM{
		{
			Name: "cp1", Where: "101 on pve1", MACs: []string{"02:00:00:00:00:01", "02:00:00:00:00:0a"},
			UUID: "00000000-0000-4000-8000-00000000000a", BIOS: set("ovmf"), Machine: set("pc-q35-9.0"), CPU: set("host"),
			Cores: set("8"), Memory: set("8192"),
			Balloon: set("0"),
			SCSI:    set("virtio-scsi-pci"), Networks: []proxmox.Setting{set("virtio"), set("e1000")},
			PreEnrolledKeys: set("true"),
			Agent:           set("true"),
			Hotplug:         set("disk,memory"),
		},
		{ // Proxmox' own defaults: a balloon among them
			Name: "w1", Where: "102 on pve1", BIOS: set("seabios"), Machine: set("pc"), CPU: set("kvm64"), CPUArguments: true,
			Cores: set("1"), Memory: set("512"),
			Balloon: set("512"), SCSI: set("lsi"), PreEnrolledKeys: set("false"), Agent: set("0"),
			Hotplug: set("network,disk,usb"),
		},
	}, machines)
}

func TestWhatTheAPIRefusesHasNoToken(t *testing.T) {
	t.Parallel()

	guest := []map[string]any{{"vmid": 1, "name": "cp1", "node": "pve1", "type": "qemu"}}
	server := pve(t, guest, nil)
	odd := httptest.NewServer(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	t.Cleanup(odd.Close)

	moved := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://192.0.2.1/", http.StatusFound)
	}))
	t.Cleanup(moved.Close)

	for name, test := range map[string]struct {
		api  proxmox.API
		want string
	}{
		"wrong token": {proxmox.API{Endpoint: server.URL, Token: "s3cr3t", Insecure: true},
			"answers 401 to cluster/resources?type=vm: it does not know the token"},
		"unknown certificate": {proxmox.API{Endpoint: server.URL, Token: token}, "certificate"},
		"no configuration": {proxmox.API{Endpoint: server.URL, Token: token, Insecure: true},
			"VM cp1: ask Proxmox: " + strings.TrimPrefix(server.URL, "https://") + " answers 500 to nodes/pve1/qemu/1/config"},
		"no URL": {proxmox.API{Endpoint: "http://root:s3cr3t@a b:1", Token: "s3cr3t"}, "is no URL"},
		"not Proxmox": {proxmox.API{Endpoint: odd.URL, Token: token},
			"read Proxmox' answer to cluster/resources?type=vm"},
		"a redirect": {proxmox.API{Endpoint: moved.URL, Token: token}, "answers 302"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, err := proxmox.VMs(context.Background(), []proxmox.API{test.api}, all)
			require.ErrorContains(t, err, test.want)
			require.NotContains(t, err.Error(), test.api.Token)
		})
	}
}

// The machines of hosts that answer are known although others fail.
func TestWhatAHostRefusesIsNamedBesideTheMachinesOfTheOthers(t *testing.T) {
	t.Parallel()

	host := func(name, mac string) *httptest.Server {
		return pve(t, []map[string]any{{"vmid": 101, "name": name, "node": "pve1", "type": "qemu"}},
			map[string]map[string]any{"101": {"net0": "virtio=" + mac}})
	}

	first, second := host("cp1", "02:00:00:00:00:01"), host("cp2", "02:00:00:00:00:02")

	for status, want := range map[int]string{
		401: "answers 401 to cluster/resources?type=vm: it does not know the token, or the token has expired",
		403: "answers 403 to cluster/resources?type=vm: the token lacks the role PVEAuditor",
		500: "answers 500 to cluster/resources?type=vm: it failed by itself",
		595: "answers 595 to cluster/resources?type=vm: it can't reach the host that has the VM",
		596: "answers 596 to cluster/resources?type=vm: it can't reach the host that has the VM",
	} {
		refusing := httptest.NewServer(http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		t.Cleanup(refusing.Close)

		machines, err := ask(t, all, first.URL, refusing.URL, second.URL)
		require.ErrorAs(t, err, &proxmox.UnreadError{})
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), token)
		require.Len(t, machines, 2)
		require.Equal(t, []string{"02:00:00:00:00:01"}, machines[0].MACs)
		require.Equal(t, []string{"02:00:00:00:00:02"}, machines[1].MACs)
	}
}

// A host of the cluster that is off hides its own machines alone.
func TestAVMOnAHostThatIsOffIsNamedBesideTheOthers(t *testing.T) {
	t.Parallel()

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api2/json/cluster/resources":
			_, _ = w.Write([]byte(`{"data":[{"vmid":1,"name":"cp1","node":"pve1","type":"qemu"},` +
				`{"vmid":2,"name":"cp2","node":"pve2","type":"qemu"}]}`))
		case "/api2/json/nodes/pve1/qemu/1/config":
			w.WriteHeader(596)
		default:
			_, _ = w.Write([]byte(`{"data":{"net10":"virtio=02:00:00:00:00:10","net2":"virtio=02:00:00:00:00:02",` +
				`"net3":"virtio"}}`))
		}
	}))
	t.Cleanup(server.Close)

	machines, err := ask(t, all, server.URL)
	require.ErrorContains(t, err, "VM cp1: ask Proxmox: ")
	require.ErrorContains(t, err, "answers 596 to nodes/pve1/qemu/1/config: it can't reach the host that has the VM")
	require.Len(t, machines, 1)
	require.Equal(t, "cp2", machines[0].Name)
	require.Equal(t, []string{"02:00:00:00:00:02", "02:00:00:00:00:10"}, machines[0].MACs, "by the cards' numbers")
}

func TestHostsHaveOneTokenOrOneEach(t *testing.T) {
	t.Parallel()

	apis, err := proxmox.APIs([]string{"https://a", "https://b"}, []string{"one", "two"}, false)
	require.NoError(t, err)
	require.Equal(t, []proxmox.API{{Endpoint: "https://a", Token: "one"}, {Endpoint: "https://b", Token: "two"}}, apis)

	_, err = proxmox.APIs([]string{"https://a"}, nil, false)
	require.ErrorContains(t, err, "PROXMOX_VE_API_TOKEN is not")
}

// told is a machine in short, with a question mark for what can't be told.
func told(vm proxmox.VM) string {
	words := []string{vm.Name}

	for _, setting := range append([]proxmox.Setting{vm.BIOS, vm.Machine, vm.CPU, vm.Cores, vm.Memory, vm.Balloon, vm.SCSI,
		vm.Agent, vm.Hotplug, vm.PreEnrolledKeys}, vm.Networks...) {
		if !setting.Known {
			setting.Value = "?"
		}

		words = append(words, setting.Value)
	}

	return strings.Join(words, " ")
}

func TestMachinesOfOpenTofuFiles(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"bpg, all set": {`resource "proxmox_virtual_environment_vm" "a" {
  for_each = { cp1 = 8192, w1 = 16384 }
  name = each.key
  bios = "ovmf"
  machine = "q35"
  scsi_hardware = "virtio-scsi-single"
  cpu {
    type = "host"
    cores = 2
    sockets = 2
  }
  memory {
    dedicated = each.value
    floating = 1024
  }
  agent {
    enabled = true
  }
  efi_disk {
    pre_enrolled_keys = true
  }
  network_device {}
  network_device {
    model = "e1000"
  }
}`, []string{"cp1 ovmf q35 host 4 8192 1024 virtio-scsi-single true network,disk,usb true virtio e1000",
			"w1 ovmf q35 host 4 16384 1024 virtio-scsi-single true network,disk,usb true virtio e1000"}},
		"bpg, defaults": {`resource "proxmox_virtual_environment_vm" "a" {}`,
			[]string{"a seabios pc qemu64 1 512 0 virtio-scsi-pci false network,disk,usb ?"}},
		"bpg, a clone": {"resource \"proxmox_virtual_environment_vm\" \"a\" {\n  bios = \"ovmf\"\n  " +
			"clone {}\n}", []string{"a ovmf ? ? ? ? ? ? ? ? ?"}},
		"bpg, a template": {"resource \"proxmox_virtual_environment_vm\" \"a\" {\n  template = true\n}", nil},
		"bpg, made when it is applied": {"resource \"proxmox_virtual_environment_vm\" \"a\" {\n  dynamic \"cpu\" {\n    " +
			"for_each = data.a.b\n    content {}\n  }\n  count = data.a.b\n}",
			[]string{" seabios pc ? ? 512 0 virtio-scsi-pci false network,disk,usb ?"}},
		"bpg, operators, conditions and dynamic blocks": {`variable "big" { default = true }
resource "proxmox_virtual_environment_vm" "a" {
  count = 2
  name = "w${count.index + 1}"
  bios = var.big && count.index == 0 ? "ovmf" : "seabios"
  memory {
    dedicated = 4 * 1024
  }
  dynamic "network_device" {
    for_each = ["virtio", "e1000"]
    content {
      model = network_device.value
    }
  }
}`, []string{"w1 ovmf pc qemu64 1 4096 0 virtio-scsi-pci false network,disk,usb ? virtio e1000",
			"w2 seabios pc qemu64 1 4096 0 virtio-scsi-pci false network,disk,usb ? virtio e1000"}},
		"Telmate, version 3": {`resource "proxmox_vm_qemu" "a" {
  name = "cp1"
  bios = "ovmf"
  machine = "q35"
  scsihw = "virtio-scsi-pci"
  memory = 4096
  balloon = 2048
  agent = 1
  hotplug = "network,memory"
  cpu {
    type = "x86-64-v2-AES"
    cores = 4
  }
  efidisk {
    pre_enrolled_keys = 1
  }
  network {
    model = "virtio"
  }
}`, []string{"cp1 ovmf q35 x86-64-v2-AES 4 4096 2048 virtio-scsi-pci true network,memory true virtio"}},
		"Telmate, version 2": {"resource \"proxmox_vm_qemu\" \"a\" {\n  cpu = \"kvm64\"\n  cores = 2\n}",
			[]string{"a seabios pc kvm64 2 512 0 lsi 0 network,disk,usb ?"}},
		"Telmate, a clone": {"resource \"proxmox_vm_qemu\" \"a\" {\n  clone = \"base\"\n}",
			[]string{"a ? ? ? ? ? ? ? ? ? ?"}},
		"other things": {"resource \"proxmox_virtual_environment_file\" \"a\" {}\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			folder := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(folder, "main.tf"), []byte(test.text), 0o600))

			machines, err := proxmox.FromTofu(folder, filepath.Base)
			require.NoError(t, err)

			var shown []string
			for _, vm := range machines {
				shown = append(shown, told(vm))
			}

			require.Equal(t, test.want, shown)
		})
	}
}

func TestASettingHasItsPlace(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "main.tf"),
		[]byte("variable \"bios\" {}\nresource \"proxmox_virtual_environment_vm\" \"a\" {\n  bios = var.bios\n}\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "terraform.tfvars"), []byte("bios = \"ovmf\"\n"), 0o600))

	machines, err := proxmox.FromTofu(folder, filepath.Base)
	require.NoError(t, err)
	require.Equal(t, proxmox.Location{Path: "terraform.tfvars", Line: 1, Column: 8, Text: `bios = "ovmf"`},
		machines[0].BIOS.At)
	require.Equal(t, 2, machines[0].SCSI.At.Line, "of a default the block's")

	require.NoError(t, os.WriteFile(filepath.Join(folder, "main.tf"),
		[]byte("module \"vms\" {\n  source = \"acme/vms/proxmox\"\n}\n"), 0o600))

	_, err = proxmox.FromTofu(folder, filepath.Base)
	require.ErrorAs(t, err, &proxmox.UnreadError{}, "it may make them")
	require.ErrorContains(t, err, "are not read, and may make VMs: module vms (main.tf:1)")

	_, err = proxmox.FromTofu(filepath.Join(folder, "absent"), filepath.Base)
	require.ErrorIs(t, err, os.ErrNotExist)
}
