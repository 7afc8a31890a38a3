nodes = [
  { name = "harbour-cp-1", host = "pve1", vm_cores = 4, vm_memory = 8192, vm_disk = 64 },
  { name = "harbour-cp-2", host = "pve2", vm_cores = 4, vm_memory = 8192, vm_disk = 64 },
  { name = "harbour-cp-3", host = "pve3", vm_cores = 4, vm_memory = 8192, vm_disk = 64 },
  { name = "harbour-worker-1", host = "pve1", vm_cores = 8, vm_memory = 24576, vm_disk = 256 },
  { name = "harbour-worker-2", host = "pve2", vm_cores = 8, vm_memory = 24576, vm_disk = 256 },
  { name = "harbour-worker-3", host = "pve3", vm_cores = 8, vm_memory = 24576, vm_disk = 256 },
]
