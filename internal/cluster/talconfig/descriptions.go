package talconfig

import (
	"reflect"

	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/config/types/runtime/extensions"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
)

// talosKeys describe the keys of Talos' own types, which have no tags for it. Sources: Talos' configuration reference
// for v1.13; for bonds the Linux kernel's Documentation/networking/bonding.rst.
var talosKeys = yamlfile.Descriptions{
	reflect.TypeFor[v1alpha1.Device](): {
		"interface":      "The link's name, as eth0. Either this or deviceSelector.",
		"deviceSelector": "Finds the link by what it is, in place of its name.",
		"addresses":      "Static addresses, each with its prefix length, as 192.0.2.11/24.",
		"cidr":           "One static address; an older spelling of addresses.",
		"routes":         "Routes through this link.",
		"bond":           "Makes the link a bond of others.",
		"bridge":         "Makes the link a bridge of others.",
		"bridgePort":     "Makes the link a port of a bridge.",
		"vlans":          "VLANs on top of the link.",
		"mtu":            "The largest packet in bytes. Default: the driver's, mostly 1500.",
		"dhcp":           "Asks for an address by DHCP.",
		"ignore":         "Leaves the link alone.",
		"dummy":          "Makes a virtual link that carries addresses alone.",
		"dhcpOptions":    "How to ask by DHCP.",
		"wireguard":      "Makes the link a WireGuard tunnel.",
		"vip":            "An address that the control planes share; one of them has it at a time.",
	},
	reflect.TypeFor[v1alpha1.NetworkDeviceSelector](): {
		"busPath":       "Where it is plugged in, as 00:1f.6; * stands for anything.",
		"driver":        "The kernel's driver, as virtio_net; * stands for anything.",
		"hardwareAddr":  "Its MAC address now, as 02:00:00:*; a bond's links share one.",
		"pciID":         "Vendor and product, as 8086:15b7; * stands for anything.",
		"permanentAddr": "The MAC address that it was made with.",
		"physical":      "Only links that are hardware.",
	},
	reflect.TypeFor[v1alpha1.Bond](): {
		"interfaces":      "The links that are joined, by name.",
		"deviceSelectors": "The links that are joined, by what they are.",
		"mode": "How they share the load: balance-rr, active-backup, balance-xor, broadcast, 802.3ad, " +
			"balance-tlb or balance-alb.",
		"xmitHashPolicy": "What decides which link a packet takes: layer2, layer3+4, layer2+3, encap2+3, encap3+4 or " +
			"vlan+srcmac.",
		"lacpRate":        "How often the switch is to send LACP packets: slow or fast.",
		"miimon":          "Milliseconds between looks at the links' carriers; 0 never looks.",
		"updelay":         "Milliseconds that a link has to be up before it is used.",
		"downdelay":       "Milliseconds that a link has to be down before it is given up.",
		"useCarrier":      "Whether a link's driver tells of its carrier.",
		"primary":         "The link that is used as long as it is up. Not for Talos 1.12 and newer.",
		"primaryReselect": "When the primary link is taken again: always, better or failure.",
		"failOverMac":     "Whose MAC address the bond has: none, active or follow.",
		"arpIPTarget":     "Addresses that are asked by ARP to see whether a link works.",
		"arpInterval":     "Milliseconds between questions by ARP; 0 asks none.",
		"arpValidate": "Which links' answers have to be right: none, active, backup, all, filter, filter_active or " +
			"filter_backup.",
		"arpAllTargets":   "How many targets have to answer: any or all.",
		"adSelect":        "Which group of links is used with 802.3ad: stable, bandwidth or count.",
		"adActorSystem":   "The MAC address of this side in LACP packets. Not for Talos 1.12 and newer.",
		"adActorSysPrio":  "The priority of this side in LACP packets.",
		"adUserPortKey":   "The upper bits of the port's key in LACP packets.",
		"allSlavesActive": "1 keeps duplicates that arrive on unused links.",
		"lpInterval":      "Seconds between the packets that teach switches.",
		"minLinks":        "How many links have to be up before the bond is.",
		"numPeerNotif":    "How often neighbours are told after another link took over.",
		"peerNotifyDelay": "Milliseconds between these.",
		"packetsPerSlave": "Packets that a link sends before the next one, with balance-rr.",
		"resendIgmp":      "How often memberships are told after another link took over.",
		"tlbDynamicLb":    "1 moves traffic by load, with balance-tlb.",
	},
	reflect.TypeFor[v1alpha1.Bridge](): {
		"interfaces": "The links that are joined, by name.",
		"stp":        "The spanning tree protocol.",
		"vlan":       "VLANs in the bridge.",
	},
	reflect.TypeFor[v1alpha1.BridgePort](): {"master": "The bridge's name."},
	reflect.TypeFor[v1alpha1.STP](): {"enabled": "Switches the protocol on, which keeps bridges from " +
		"making loops."},
	reflect.TypeFor[v1alpha1.BridgeVLAN](): {"vlanFiltering": "Lets a port have only the VLANs that it " +
		"is given."},
	reflect.TypeFor[v1alpha1.VIPEquinixMetalConfig](): {"apiToken": "Token of the cloud's API, by which the " +
		"address moves."},
	reflect.TypeFor[v1alpha1.VIPHCloudConfig](): {"apiToken": "Token of the cloud's API, by which the " +
		"address moves."},
	reflect.TypeFor[v1alpha1.Vlan](): {
		"addresses":   "Static addresses, each with its prefix length.",
		"cidr":        "One static address; an older spelling of addresses.",
		"dhcp":        "Asks for an address by DHCP.",
		"dhcpOptions": "How to ask by DHCP.",
		"mtu":         "The largest packet in bytes.",
		"routes":      "Routes through the VLAN.",
		"vip":         "An address that the control planes share.",
		"vlanId":      "The VLAN's number, 1 to 4094.",
	},
	reflect.TypeFor[v1alpha1.Route](): {
		"network": "Where it leads, as 0.0.0.0/0, which is also the default.",
		"gateway": "The router's address. Without one the network is on the link itself.",
		"source":  "The address that packets get as their sender's.",
		"metric":  "Of several routes the one with the lowest is taken.",
		"mtu":     "The largest packet in bytes.",
	},
	reflect.TypeFor[v1alpha1.DHCPOptions](): {
		"routeMetric": "The metric of the routes that are learnt.",
		"ipv4":        "Asks for IPv4. Default: true.",
		"ipv6":        "Asks for IPv6. Default: false.",
		"duidv6":      "Who the machine says it is, in DHCPv6.",
	},
	reflect.TypeFor[v1alpha1.DeviceVIPConfig](): {
		"ip":           "The shared address.",
		"equinixMetal": "Moves the address by Equinix Metal's API.",
		"hcloud":       "Moves the address by Hetzner Cloud's API.",
	},
	reflect.TypeFor[v1alpha1.DeviceWireguardConfig](): {
		"privateKey":   "This machine's key, in base64. A secret.",
		"listenPort":   "The UDP port that others call.",
		"firewallMark": "A mark for the tunnel's packets.",
		"peers":        "The other ends.",
	},
	reflect.TypeFor[v1alpha1.DeviceWireguardPeer](): {
		"publicKey":                   "The other end's key, in base64.",
		"endpoint":                    "Its address and port; a name up to Talos 1.11 alone.",
		"persistentKeepaliveInterval": "How often a packet keeps the way open, as 25s.",
		"allowedIPs":                  "Networks that are behind it.",
	},
	reflect.TypeFor[v1alpha1.InstallDiskSelector](): {
		"size":     "A size, or a condition on it, as >= 100GB.",
		"name":     "The kernel's name in /sys/block/<disk>/device/name; * stands for anything.",
		"model":    "The model; * stands for anything.",
		"serial":   "The serial number; * stands for anything.",
		"modalias": "The kernel's modalias; * stands for anything.",
		"uuid":     "The disk's UUID; * stands for anything.",
		"wwid":     "The disk's WWID; * stands for anything.",
		"type":     "The kind of disk: ssd, hdd, nvme or sd.",
		"busPath":  "Where it is plugged in; * stands for anything.",
	},
	reflect.TypeFor[v1alpha1.MachineDisk](): {
		"device":     "The disk, as /dev/sdb. What is on it is lost unless it has these partitions already.",
		"partitions": "Its partitions, in their order.",
	},
	reflect.TypeFor[v1alpha1.DiskPartition](): {
		"size":       "Its size, as 100GB. Without one the last partition takes what is left.",
		"mountpoint": "Where it is mounted, below /var.",
	},
	reflect.TypeFor[v1alpha1.KernelModuleConfig](): { //nolint:staticcheck // talconfig.yaml has its keys
		"name":       "The module, as nvidia.",
		"parameters": "Its parameters, as name=value.",
	},
	reflect.TypeFor[v1alpha1.CNIConfig](): {
		"name":    "flannel, which Talos brings; custom, from urls; or none, which is yours to install.",
		"urls":    "Manifests of a custom one.",
		"flannel": "Settings of flannel.",
	},
	reflect.TypeFor[v1alpha1.FlannelCNIConfig](): {
		"extraArgs":                  "More arguments of flanneld.",
		"kubeNetworkPoliciesEnabled": "Puts network policies into force.",
	},
	reflect.TypeFor[network.RulePortSelector](): {
		"ports":    "Ports, and ranges as 2379-2380.",
		"protocol": "tcp, udp, icmp or icmpv6.",
	},
	reflect.TypeFor[network.IngressRule](): {
		"subnet": "Who may call, as 192.0.2.0/24.",
		"except": "A part of the subnet that may not.",
	},
	reflect.TypeFor[extensions.ConfigFile](): {
		"content":   "The file's text.",
		"mountPath": "Where the service finds it.",
	},
	reflect.TypeFor[block.ProvisioningSpec](): {
		"diskSelector": "The disk that it is made on.",
		"grow":         "Takes the space that becomes free behind it.",
		"minSize":      "The least it needs, as 10GB.",
		"maxSize":      "The most it takes, as 100GB or 50%.",
	},
	reflect.TypeFor[block.DiskSelector](): {"match": "A CEL expression over `disk` and `system_disk`, as " +
		"disk.transport == \"nvme\"."},
	reflect.TypeFor[block.FilesystemSpec](): {
		"type":                "The file system: xfs, which is the default, or ext4; btrfs from Talos 1.14 on.",
		"projectQuotaSupport": "Lets quotas limit folders, with xfs.",
		"xfs":                 "Settings of xfs. From Talos 1.14 on.",
	},
	reflect.TypeFor[block.XFSSpec](): {"minAllocationGroupSize": "The least size of an allocation group, as 128GiB; 0 " +
		"leaves it to mkfs.xfs."},
	reflect.TypeFor[block.EncryptionSpec](): {
		"provider":      "How it is encrypted: luks2.",
		"keys":          "What opens it: any one of these.",
		"cipher":        "The cipher. Default: aes-xts-plain64.",
		"keySize":       "The key's size in bits. Default: the cipher's.",
		"blockSize":     "The size in bytes of what is encrypted at once. Default: the disk's.",
		"options":       "cryptsetup's performance options, as no_read_workqueue.",
		"allowDiscards": "Tells the disk which blocks are free. From Talos 1.14 on.",
	},
	reflect.TypeFor[block.EncryptionKey](): {
		"slot":        "The key's place, from 0 on.",
		"static":      "A passphrase.",
		"nodeID":      "Made of the machine's UUID and the partition's label: it keeps nobody out who has the machine.",
		"kms":         "Kept at a key management server.",
		"tpm":         "Sealed by the machine's TPM.",
		"lockToState": "Works only beside the STATE partition that it was made with.",
	},
	reflect.TypeFor[block.EncryptionKeyStatic](): {"passphrase": "The passphrase. A secret."},
	reflect.TypeFor[block.EncryptionKeyKMS]():    {"endpoint": "The server's URL."},
	reflect.TypeFor[block.EncryptionKeyTPM](): {
		"checkSecurebootStatusOnEnroll": "Seals only on a machine that was started with SecureBoot.",
		"options":                       "How the TPM seals.",
	},
	reflect.TypeFor[block.EncryptionKeyTPMOptions](): {"pcrs": "Registers that have to be the same again. Default: 7."},
}
