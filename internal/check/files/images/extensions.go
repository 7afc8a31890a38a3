package images

// extensionSince is the first Talos 1.x release, 1.5 at least, that the image factory has an official extension for, by
// its name without "siderolabs/". Source: the lists of each release that talhelper v3.1.16 has in
// pkg/config/schemas/talos-extensions.json.
var extensionSince = map[string]int{
	"amd-ucode": 5, "bnx2-bnx2x": 5, "drbd": 5, "gasket-driver": 5, "gvisor": 5, "hello-world-service": 5, "i915-ucode": 5,
	"intel-ucode": 5,
	"iscsi-tools": 5, "nonfree-kmod-nvidia": 5, "nut-client": 5, "nvidia-container-toolkit": 5, "nvidia-fabricmanager": 5,
	"nvidia-open-gpu-kernel-modules": 5, "qemu-guest-agent": 5, "tailscale": 5, "thunderbolt": 5, "usb-modem-drivers": 5,
	"zfs": 5,

	"amdgpu-firmware": 6, "binfmt-misc": 6, "btrfs": 6, "chelsio-drivers": 6, "chelsio-firmware": 6,
	"ecr-credential-provider": 6, "fuse3": 6,
	"intel-ice-firmware": 6, "mdadm": 6, "qlogic-firmware": 6, "realtek-firmware": 6, "stargz-snapshotter": 6,
	"util-linux-tools": 6,
	"v4l-uvc-drivers":  6, "xe-guest-utilities": 6,

	"gvisor-debug": 7, "kata-containers": 7, "spin": 7, "vmtoolsd-guest-agent": 7, "wasmedge": 7, "xen-guest-agent": 7,

	"crun": 8, "lldpd": 8, "mei": 8, "nonfree-kmod-nvidia-lts": 8, "nonfree-kmod-nvidia-production": 8,
	"nvidia-container-toolkit-lts":        8,
	"nvidia-container-toolkit-production": 8, "nvidia-fabricmanager-lts": 8, "nvidia-fabricmanager-production": 8,
	"nvidia-open-gpu-kernel-modules-lts": 8, "nvidia-open-gpu-kernel-modules-production": 8, "uinput": 8,

	"amdgpu": 9, "cloudflared": 9, "dvb-cx23885": 9, "glibc": 9, "i915": 9, "metal-agent": 9,

	"amazon-ena": 10, "ctr": 10, "nebula": 10, "nfsd": 10, "nvme-cli": 10, "panfrost": 10, "revpi-firmware": 10, "vc4": 10,
	"xdma-driver": 10,
	"youki":       10, "zerotier": 10,

	"dvb-m88ds3103": 11, "hailort": 11, "newt": 11, "nfsrahead": 11, "tenstorrent": 11,

	"bird2": 12, "gpio-pinctrl": 12, "mellanox-mstflint": 12, "multipath-tools": 12, "netbird": 12, "nfs-utils": 12,
	"nvidia-gdrdrv-device": 12,
	"soci-snapshotter":     12, "trident-iscsi-tools": 12, "usb-audio-drivers": 12, "xe": 12,

	"intel-npu": 13, "joydev": 13, "px-fuse": 13, "rockchip-rknn": 13, "uhid": 13,

	"cachefilesd": 14, "harbor-credential-provider": 14, "hyperv-guest-agent": 14, "kata-containers-snp": 14, "qemu": 14, //nolint:misspell // that is its name
}
