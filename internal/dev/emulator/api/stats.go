package api

import (
	"context"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/machine"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/service"
)

// What every emulated machine has, in KiB where the kernel counts so.
const (
	memoryTotal = 8 << 20
	memoryFree  = 6 << 20
)

// Memory tells of the machine's memory.
func (s *statsAPI) Memory(context.Context, *emptypb.Empty) (*machineapi.MemoryResponse, error) {
	return &machineapi.MemoryResponse{Messages: []*machineapi.Memory{{
		Meminfo: &machineapi.MemInfo{Memtotal: memoryTotal, Memfree: memoryFree, Memavailable: memoryFree},
	}}}, nil
}

// LoadAvg reports whether the machine is idle.
func (s *statsAPI) LoadAvg(context.Context, *emptypb.Empty) (*machineapi.LoadAvgResponse, error) {
	return &machineapi.LoadAvgResponse{Messages: []*machineapi.LoadAvg{{Load1: 0.1, Load5: 0.1, Load15: 0.1}}}, nil
}

// CPUInfo tells of the machine's one processor.
func (s *statsAPI) CPUInfo(context.Context, *emptypb.Empty) (*machineapi.CPUInfoResponse, error) {
	return &machineapi.CPUInfoResponse{
		Messages: []*machineapi.CPUsInfo{{CpuInfo: []*machineapi.CPUInfo{{ModelName: "Emulated CPU", CpuCores: 1}}}}}, nil
}

// SystemStat tells when the machine was booted.
func (s *statsAPI) SystemStat(context.Context, *emptypb.Empty) (*machineapi.SystemStatResponse, error) {
	return &machineapi.SystemStatResponse{Messages: []*machineapi.SystemStat{{BootTime: uint64(s.boot.Started.Unix())}}}, nil //nolint:gosec // after 1970
}

// DiskStats tells the disks' names; they are idle.
func (s *statsAPI) DiskStats(context.Context, *emptypb.Empty) (*machineapi.DiskStatsResponse, error) {
	stats := &machineapi.DiskStats{Total: &machineapi.DiskStat{Name: "total"}}

	for _, disk := range s.boot.Node.Options().Disks {
		stats.Devices = append(stats.Devices, &machineapi.DiskStat{Name: disk.Name})
	}

	return &machineapi.DiskStatsResponse{Messages: []*machineapi.DiskStats{stats}}, nil
}

// NetworkDeviceStats tells the links' names; they are idle.
func (s *statsAPI) NetworkDeviceStats(context.Context, *emptypb.Empty) (*machineapi.NetworkDeviceStatsResponse,
	error) {
	stats := &machineapi.NetworkDeviceStats{Total: &machineapi.NetDev{Name: "total"}}

	for _, link := range s.boot.Node.Options().Links {
		stats.Devices = append(stats.Devices, &machineapi.NetDev{Name: link.Name})
	}

	return &machineapi.NetworkDeviceStatsResponse{Messages: []*machineapi.NetworkDeviceStats{stats}}, nil
}

// Mounts tells where the system's partitions are mounted.
func (s *statsAPI) Mounts(context.Context, *emptypb.Empty) (*machineapi.MountsResponse, error) {
	mounts := &machineapi.Mounts{Stats: []*machineapi.MountStat{{Filesystem: "rootfs", MountedOn: "/"}}}

	if disk := s.boot.Node.ReadDrive().SystemDisk; disk != "" {
		last := machine.PartitionName(disk, len(machine.SystemPartitions))
		mounts.Stats = append(mounts.Stats, &machineapi.MountStat{Filesystem: "/dev/" + last, MountedOn: "/var"})
	}

	return &machineapi.MountsResponse{Messages: []*machineapi.Mounts{mounts}}, nil
}

// Processes tells the running services.
func (s *statsAPI) Processes(context.Context, *emptypb.Empty) (*machineapi.ProcessesResponse, error) {
	processes := &machineapi.Process{}

	for i, shown := range s.boot.Services.List() {
		if shown.GetState() == string(service.Running) {
			processes.Processes = append(processes.Processes, &machineapi.ProcessInfo{Pid: int32(i + 1), State: "S", Command: shown.GetId()}) //nolint:gosec // a few
		}
	}

	return &machineapi.ProcessesResponse{Messages: []*machineapi.Process{processes}}, nil
}

// Containers reports whether no container runs outside of Kubernetes.
func (s *statsAPI) Containers(context.Context, *machineapi.ContainersRequest) (*machineapi.ContainersResponse,
	error) {
	return &machineapi.ContainersResponse{Messages: []*machineapi.Container{{}}}, nil
}

// Stats tells of the containers, of which there are none.
func (s *statsAPI) Stats(context.Context, *machineapi.StatsRequest) (*machineapi.StatsResponse, error) {
	return &machineapi.StatsResponse{Messages: []*machineapi.Stats{{}}}, nil
}

// Netstat tells the ports that the machine listens on.
func (s *statsAPI) Netstat(context.Context, *machineapi.NetstatRequest) (*machineapi.NetstatResponse, error) {
	return &machineapi.NetstatResponse{Messages: []*machineapi.Netstat{{
		Connectrecord: []*machineapi.ConnectRecord{{L4Proto: "tcp", Localip: "0.0.0.0", Localport: machine.APIPort,
			State: machineapi.ConnectRecord_LISTEN}},
	}}}, nil
}

// LogsContainers tells whose logs there are.
func (s *statsAPI) LogsContainers(context.Context, *emptypb.Empty) (*machineapi.LogsContainersResponse, error) {
	logs := &machineapi.LogsContainer{Ids: []string{"kernel"}}

	for _, service := range s.boot.Services.List() {
		logs.Ids = append(logs.Ids, service.GetId())
	}

	return &machineapi.LogsContainersResponse{Messages: []*machineapi.LogsContainer{logs}}, nil
}
