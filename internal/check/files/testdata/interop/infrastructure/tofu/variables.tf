variable "nodes" {
  type = list(object({
    name      = string
    host      = string
    vm_cores  = number
    vm_memory = number
    vm_disk   = number
  }))
}

variable "network_bridge" {
  type    = string
  default = "vmbr0"
}

variable "disk_storage" {
  type    = string
  default = "local-zfs"
}

variable "vm_advanced" {
  type = object({
    bios       = string
    machine    = string
    cpu_type   = string
    scsi_hw    = string
    balloon    = number
    numa       = bool
    net_queues = number
  })
  default = {
    bios       = "ovmf"
    machine    = "q35"
    cpu_type   = "host"
    scsi_hw    = "virtio-scsi-pci"
    balloon    = 0
    numa       = true
    net_queues = 4
  }
}
