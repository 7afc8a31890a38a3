locals {
  nodes = { for node in var.nodes : node.name => node }
}

resource "proxmox_virtual_environment_vm" "talos_node" {
  for_each = local.nodes

  name      = each.value.name
  node_name = each.value.host
  bios      = var.vm_advanced.bios
  machine   = var.vm_advanced.machine

  cpu {
    cores = each.value.vm_cores
    type  = var.vm_advanced.cpu_type
    numa  = var.vm_advanced.numa
  }

  memory {
    dedicated = each.value.vm_memory
    floating  = var.vm_advanced.balloon # 0: no balloon
  }

  scsi_hardware = var.vm_advanced.scsi_hw

  network_device {
    bridge = var.network_bridge
    model  = "virtio"
    queues = var.vm_advanced.net_queues
  }

  disk {
    datastore_id = var.disk_storage
    interface    = "scsi0"
    size         = each.value.vm_disk
    discard      = "on"
    ssd          = true
  }

  efi_disk {
    datastore_id      = var.disk_storage
    pre_enrolled_keys = false
  }

  serial_device {}

  agent {
    enabled = true
  }
}
