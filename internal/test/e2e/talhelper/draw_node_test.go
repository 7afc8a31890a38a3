package talhelper_test

import (
	"fmt"
	"strings"
)

// nodeConfigs draws what may stand at a node and at `controlPlane` and `worker`. The owner's name keeps names apart
// that meet in one machine config. Only control planes may have virtual addresses.
func (a *artist) nodeConfigs(at object, owner string, controlPlane bool) {
	at.may("nodeLabels", map[string]any{
		"example.org/owner": owner,
		"example.org/disk": one(a, `{{ .MachineConfig.MachineInstall.InstallDisk | replace "/" "_" | trimPrefix "_" }}`,
			"any"),
	})
	at.may("nodeAnnotations", map[string]any{
		"example.org/installer": "{{ .MachineConfig.MachineInstall.InstallImage }}",
		"example.org/secure": one(a, `{{ .MachineConfig.MachineInstall.InstallImage | contains "installer-secureboot" }}`,
			"unknown"),
		"example.org/name": one(a, "{{ .ClusterConfig.ClusterName | upper | quote }}",
			"{{ .MachineConfig.MachineType }} of {{ .ClusterConfig.ClusterName }}"),
	})
	at.may("nodeTaints", map[string]any{"example.org/only": one(a, "storage:NoSchedule", ":NoExecute",
		"gpu:PreferNoSchedule")})
	at.mayList("machineDisks", 2, a.machineDisk)
	at.mayList("machineFiles", 2, func(index int, file object) { a.machineFile(index, owner, file) })
	at.may("disableSearchDomain", a.IntN(2) == 0)
	at.mayList("kernelModules", 2, func(index int, module object) {
		module.set("name", []string{"br_netfilter", "nbd"}[index])
		module.may("parameters", some(a, "nf_conntrack_max=131072", "nbds_max=8"))
	})
	at.may("nameservers", some(a, "192.0.2.53", a.variable("NAMESERVER", "198.51.100.53"), "2001:db8::53"))
	a.networkInterfaces(at, controlPlane)
	at.may("certSANs", some(a, owner+".example.org", "192.0.2.10", "203.0.113.10"))
	at.may("patches", a.patches(owner))
	at.may("talosImageURL", "registry.example.org/talos/installer")
	at.may("noSchematicValidate", a.IntN(2) == 0)
	at.mayBe("schematic", func(schematic object) { a.schematic(schematic, false) })
	at.mayBe("imageSchematic", func(schematic object) { a.schematic(schematic, true) })
	at.mayBe("machineSpec", a.machineSpec)

	at.may("filenameTmpl", one(a, "{{.ClusterName}}-{{.Role}}-{{.Hostname}}.yaml", "{{ .Hostname }}.yaml",
		"{{ .Role }}-{{ .IPAddress }}.yaml"))

	if a.single {
		return
	}

	at.may("extraManifests", []any{a.extraManifest(owner)})
	at.mayBe("ingressFirewall", a.firewall)
	at.mayList("extensionServices", 2, func(index int, service object) {
		service.set("name", []string{"nut-client", "tailscale"}[index])
		service.set("environment", some(a, "UPS_NAME=ups", "TS_HOSTNAME="+owner))
		service.mayList("configFiles", 2, func(index int, file object) {
			file.set("content", "MONITOR ups@192.0.2.60 1 monitor\n")
			file.set("mountPath", fmt.Sprintf("/usr/local/etc/nut/%d.conf", index))
		})
	})
	at.mayList("volumes", 3, a.volume)

	if a.release.minor >= 10 {
		at.mayList("userVolumes", 3, func(index int, volume object) { a.userVolume(index, owner, volume) })
	}
}

func (a *artist) machineDisk(index int, disk object) {
	disk.set("device", fmt.Sprintf("/dev/disk/by-id/ata-EXAMPLE-%d", index))
	disk.list("partitions", 1, func(_ int, partition object) {
		partition.set("mountpoint", fmt.Sprintf("/var/mnt/disk%d", index))

		switch a.IntN(3) {
		case 0:
			partition.set("size", 100_000_000_000)
		case 1:
			partition.set("size", "100 GiB")
		default:
			partition.may("size", "50GB")
		}
	})
}

func (a *artist) machineFile(index int, owner string, file object) {
	text := "# a remark\nserver: ntp.example.org\n"

	file.set("path", fmt.Sprintf("/var/etc/%s-%d.yaml", owner, index))
	file.set("op", one(a, "create", "append", "overwrite"))
	file.set("permissions", one(a, 0o644, 0o600, 384))

	switch a.IntN(3) {
	case 0:
		file.set("content", text)
		file.may("skipEnvsubst", a.IntN(2) == 0)
	case 1:
		a.talenv["NTP"] = "ntp.example.org"

		file.set("content", a.file(fmt.Sprintf("files/%s-%d.yaml", owner, index), "# a remark\nserver: ${NTP}\n"))
		file.may("skipEnvsubst", false)
	default:
		file.set("content", a.file(fmt.Sprintf("files/%s-%d.yaml", owner, index), "# a remark\nserver: ${LEFT_ALONE}\n"))
		file.set("skipEnvsubst", true)
	}
}

func (a *artist) schematic(schematic object, forImage bool) {
	if forImage {
		schematic.may("owner", "somebody")
	}

	schematic.mayBe("overlay", func(overlay object) {
		board := one(a, "rpi_generic", "rock64")
		overlay.set("name", board)
		overlay.set("image", map[string]string{"rpi_generic": "siderolabs/sbc-raspberrypi",
			"rock64": "siderolabs/sbc-rockchip"}[board])
		overlay.may("options", map[string]any{"configTxt": "gpu_mem=16\n", "count": 2, "enabled": true})
	})
	schematic.mayBe("customization", func(customization object) {
		customization.may("extraKernelArgs", some(a, "net.ifnames=0", a.variable("CONSOLE", "console=ttyS0"), "-selinux"))
		customization.mayList("meta", 2, func(index int, meta object) {
			meta.set("key", 10+index)
			meta.set("value", "addresses: []\n")
		})
		customization.mayBe("systemExtensions", func(extensions object) {
			extensions.set("officialExtensions",
				some(a, "siderolabs/intel-ucode", "siderolabs/iscsi-tools", "siderolabs/amd-ucode", "siderolabs/tailscale"))
		})
		customization.may("bootloader", one(a, "sd-boot", "grub", "dual-boot"))
		customization.mayBe("secureboot", func(secureboot object) {
			secureboot.may("enrollKeys", one(a, "off", "manual", "if-safe", "force"))
			secureboot.may("includeWellKnownCertificates", a.IntN(2) == 0)
		})

		if forImage {
			customization.may("embeddedMachineConfiguration", "apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: example\n")
			customization.mayBe("diskImage", func(image object) { image.set("sectorSize", one(a, 512, 4096)) })
		}
	})
}

func (a *artist) machineSpec(spec object) {
	spec.may("mode", one(a, "metal", "metal", "nocloud", "openstack"))
	spec.may("arch", one(a, "amd64", "arm64"))
	spec.may("secureboot", a.IntN(2) == 0)
	spec.may("useUKI", a.IntN(2) == 0)

	switch a.IntN(4) {
	case 0:
		spec.set("bootMethod", "disk-image")
		spec.may("imageSuffix", one(a, "raw.xz", "qcow2"))
	case 1:
		spec.set("bootMethod", "pxe")
	case 2:
		spec.set("bootMethod", "iso")
		spec.may("imageSuffix", "iso")
	}
}

func (a *artist) firewall(firewall object) {
	firewall.set("defaultAction", one(a, "block", "accept"))
	firewall.list("rules", 1+a.IntN(2), func(index int, rule object) {
		rule.set("name", fmt.Sprintf("%s-ingress", []string{"kubelet", "apid"}[index]))
		rule.be("portSelector", func(ports object) {
			ports.set("ports", one(a, []any{10250}, []any{50000, 50001}, []any{"4000-4010", 6443}))
			ports.set("protocol", one(a, "tcp", "udp"))
		})
		rule.list("ingress", 1+a.IntN(2), func(index int, ingress object) {
			ingress.set("subnet", []string{a.variable("SUBNET", "192.0.2.0/24"), "2001:db8::/64"}[index])
			ingress.may("except", []string{"192.0.2.1/32", "2001:db8::1/128"}[index])
		})
	})
}

func (a *artist) volume(index int, volume object) {
	name := []string{"EPHEMERAL", "IMAGECACHE", "STATE"}[index]
	volume.set("name", name)

	if name != "STATE" {
		volume.be("provisioning", func(provisioning object) { a.provisioning(provisioning, true) })
	}

	if name == "STATE" || a.IntN(2) == 0 {
		volume.mayBe("encryption", func(encryption object) { a.encryption(encryption, name != "STATE") })
	}
}

func (a *artist) userVolume(index int, owner string, volume object) {
	volume.set("name", fmt.Sprintf("data-%s-%d", owner, index))

	kind := a.rarest("volume", "partition", "directory", "disk", "")
	if kind != "" {
		volume.set("volumeType", kind)
	}

	if kind == "directory" {
		return
	}

	volume.be("provisioning", func(provisioning object) { a.provisioning(provisioning, kind != "disk") })
	volume.mayBe("filesystem", func(filesystem object) { filesystem.set("type", one(a, "xfs", "ext4")) })
	volume.mayBe("encryption", func(encryption object) { a.encryption(encryption, true) })
}

func (a *artist) provisioning(provisioning object, sizes bool) {
	provisioning.be("diskSelector", func(selector object) {
		selector.set("match", one(a, `disk.transport == "nvme"`, `disk.size > 100u * GB && !system_disk`, "system_disk"))
	})

	if sizes {
		provisioning.may("grow", a.IntN(2) == 0)
		provisioning.set("minSize", one(a, "10GiB", "2.5GiB", "20GB"))
		provisioning.may("maxSize", one(a, "50GiB", "1TB"))
	}
}

func (a *artist) encryption(encryption object, beyondState bool) {
	encryption.set("provider", "luks2")
	encryption.may("cipher", one(a, "aes-xts-plain64", "xchacha12,aes-adiantum-plain64"))
	encryption.may("keySize", one(a, 256, 512))
	encryption.may("blockSize", 4096)
	encryption.may("options", some(a, "no_read_workqueue", "no_write_workqueue"))

	// Talos reads this from 1.14 on.
	if a.generation.newest {
		encryption.may("allowDiscards", a.IntN(2) == 0)
	}

	encryption.list("keys", 1+a.IntN(2), func(index int, key object) {
		key.set("slot", index)

		switch a.rarest(key.path, "tpm", "static", "nodeID", "kms") {
		case "static":
			key.be("static", func(static object) { static.set("passphrase", "an invented passphrase") })
		case "nodeID":
			key.set("nodeID", map[string]any{})
		case "kms":
			key.be("kms", func(kms object) { kms.set("endpoint", "https://192.0.2.61:4443") })
		case "tpm":
			key.fields["tpm"] = map[string]any{}
			key.be("tpm", func(tpm object) {
				tpm.may("checkSecurebootStatusOnEnroll", a.IntN(2) == 0)
				tpm.mayBe("options", func(options object) { options.set("pcrs", one(a, []any{7}, []any{0, 7, 11})) })
			})
		}

		if beyondState {
			key.may("lockToState", a.IntN(2) == 0)
		}
	})
}

// extraManifest is the name of a file with a document that goes into the machine config as it is.
func (a *artist) extraManifest(owner string) string {
	name := "manifests/" + owner + ".yaml"

	return strings.TrimPrefix(a.file(name, fmt.Sprintf(`---
apiVersion: v1alpha1
kind: NetworkRuleConfig
name: '{{ .MachineConfig.MachineType }}-extra-%s'
portSelector:
  ports:
    - 50001
  protocol: tcp
ingress:
  - subnet: '%s'
`, owner, a.subnet())), one(a, "", "@"))
}

// subnet is one for a template, that of the pods where the config holds it.
func (a *artist) subnet() string {
	if a.generation.newest {
		return "10.244.0.0/16"
	}

	return "{{ index .ClusterConfig.ClusterNetwork.PodSubnet 0 }}"
}

// patches are some of all kinds that can be applied to the machine config.
func (a *artist) patches(owner string) []any {
	a.talenv["MAX_PODS"] = "120"

	kinds := []any{
		// Of patches that set the same, the later one wins.
		fmt.Sprintf("machine:\n  env:\n    OWNER: %s\n    FROM_%s: \"1\"\n", owner,
			strings.ToUpper(strings.ReplaceAll(owner, "-", "_"))),
		"machine:\n  kubelet:\n    extraConfig:\n      maxPods: ${MAX_PODS}\n    extraArgs:\n      " +
			"rotate-server-certificates: \"true\"\n",
		"machine:\n  sysctls:\n    net.core.somaxconn: \"65535\"\n    vm.example: \"{{ .ClusterConfig.ClusterName }}\"\n",
		"machine:\n  network:\n    extraHostEntries:\n      - ip: 192.0.2.70\n        aliases:\n          - " +
			"cache.example.org\n",
		"cluster:\n  apiServer:\n    $$patch: delete\n",
		"cluster:\n  discovery:\n    $$patch: delete\n",
		"machine:\n  features:\n    hostDNS:\n      $$patch: delete\n",
		"{\"machine\": {\"time\": {\"servers\": [\"ntp.example.org\"]}}}",
		a.file("patches/"+owner+"-kubelet.yaml",
			"# a remark\nmachine:\n  kubelet:\n    nodeIP:\n      validSubnets:\n        - "+a.subnet()+"\n"+
				"{{- if ne .MachineConfig.MachineType \"worker\" }}\n    extraConfig:\n      maxPods: ${MAX_PODS}\n{{- end }}\n"),
		a.file("patches/"+owner+"-none.yaml", "\n  \n"),
	}

	if a.single {
		kinds = append(kinds,
			"- op: add\n  path: /machine/env\n  value:\n    JSON_PATCH: \"yes\"\n",
			`[{"op": "replace", "path": "/machine/install/wipe", "value": true}]`,
			a.file("patches/"+owner+"-json.yaml",
				"- op: add\n  path: /machine/kubelet/clusterDNS\n  value:\n    - 10.96.0.10\n"),
		)
	} else {
		kinds = append(kinds,
			"apiVersion: v1alpha1\nkind: KmsgLogConfig\nname: patched\nurl: tcp://192.0.2.62:5044/\n",
			"---\nmachine:\n  env:\n    SEVERAL: documents\n---\napiVersion: v1alpha1\nkind: EventSinkConfig\nendpoint: "+
				"192.0.2.63:10000\n",
			a.file("patches/"+owner+"-volume.yaml",
				"apiVersion: v1alpha1\nkind: VolumeConfig\nname: EPHEMERAL\nprovisioning:\n  maxSize: 100GiB\n"),
		)
	}

	return some(a, kinds...)
}
