package emulator_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/base/syncbuffer"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// Installers that the tests use.
const (
	newer     = "ghcr.io/siderolabs/installer:v1.13.10"
	factorys  = "factory.talos.dev/metal-installer/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba:v1.13.10"
	schematic = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"
)

// versionOf is the release that a node runs.
func versionOf(t *testing.T, c *client.Client) string {
	t.Helper()

	var tag string

	eventually(t, func() error {
		reply, err := c.Version(deadline(t))
		if err != nil {
			return err
		}

		tag = reply.GetMessages()[0].GetVersion().GetTag()

		return nil
	})

	return tag
}

func upgrade(t *testing.T, c *client.Client, options ...client.UpgradeOption) (*machineapi.Upgrade, error) {
	t.Helper()

	reply, err := c.UpgradeWithOptions(deadline(t), options...) //nolint:staticcheck // what old clients call
	if err != nil {
		return nil, err
	}

	return reply.GetMessages()[0], nil
}

func TestClaim_8_14_AnUpgradeIsCheckedBeforeItIsAnswered(t *testing.T) {
	t.Parallel()

	cluster, c := three(t, 2)
	node := cluster.Nodes[0]

	_, err := upgrade(t, c, client.WithUpgradeImage(""))
	require.Equal(t, codes.Unknown, client.StatusCode(err))
	require.ErrorContains(t, err,
		`error validating installer image "": failed to parse image reference "": invalid reference format`)

	node.Set(func(f *emulator.Faults) { f.Install = emulator.InstallImagePull })

	_, err = upgrade(t, c, client.WithUpgradeImage(newer))
	require.Equal(t, codes.Unknown, client.StatusCode(err))
	require.ErrorContains(t, err, `error validating installer image "`+newer+`": 1 error(s) occurred:`)
	require.ErrorContains(t, err, newer+": not found")

	node.Set(func(f *emulator.Faults) { f.Install = emulator.InstallWorks })

	_, err = upgrade(t, c, client.WithUpgradeImage(newer))
	require.Equal(t, codes.Unknown, client.StatusCode(err))
	require.ErrorContains(t, err,
		"error validating etcd for upgrade: etcd member count(2) is insufficient to maintain quorum if upgrade commences")
	require.Equal(t, "v1.13.9", versionOf(t, c))

	answer, err := upgrade(t, c, client.WithUpgradeImage(newer), client.WithUpgradePreserve(true))
	require.NoError(t, err)
	require.Equal(t, "Upgrade request received", answer.GetAck())
	require.NotEmpty(t, answer.GetActorId())
	require.NoError(t, node.WaitFor(deadline(t), func(n *emulator.Node) bool { return n.Boots() == 2 && n.EtcdVoter() }))
	require.Equal(t, "v1.13.10", versionOf(t, c))
	require.Equal(t, "v1.13.9", versionOf(t, secure(t, cluster.Talosconfig(), cluster.Nodes[1])))
}

func TestClaim_8_15_AnUpgradeGoesThroughItsPhasesIntoTheNewRelease(t *testing.T) {
	t.Parallel()

	_, node, c := configuredOnDisk(t, leisurely(labcluster.Options{}))
	events := follow(t, c)

	answer, err := upgrade(t, c, client.WithUpgradeImage(factorys), client.WithUpgradeForce(true))
	require.NoError(t, err)

	texts := events.of(t, answer.GetActorId())
	require.Equal(t, "sequence upgrade START", texts[0])
	require.Equal(t, []string{
		"drain", "cleanup", "dbus", "stopServices", "unmount", "unmountBind", "unmountSystem", "volumeFinalize", "upgrade",
		"meta", "kexec", "stopEverything",
	}, phasesIn(texts))

	rebooted(t, node, 2)
	require.Equal(t, "v1.13.10", versionOf(t, c))
	require.Equal(t, schematic, extensions(t, c)["schematic"])

	// What the upgrade replaced is booted again.
	_, err = c.MachineClient.Rollback(deadline(t), &machineapi.RollbackRequest{})
	require.NoError(t, err)
	rebooted(t, node, 3)
	require.Equal(t, "v1.13.9", versionOf(t, c))
	require.Empty(t, extensions(t, c))
}

func TestClaim_8_16_AStagedUpgradeIsDoneByTheNextBoot(t *testing.T) {
	t.Parallel()

	_, node, c := configuredOnDisk(t, labcluster.Options{})

	_, err := c.MachineClient.Rollback(deadline(t), &machineapi.RollbackRequest{})
	require.Equal(t, codes.Unknown, client.StatusCode(err))
	require.ErrorContains(t, err, `cannot rollback to "", label does not exist`)

	_, err = upgrade(t, c, client.WithUpgradeImage(newer), client.WithUpgradeForce(true), client.WithUpgradeStage(true))
	require.NoError(t, err)

	// Its sequence does not take over from a boot that is not over, but what it noted stays.
	eventually(t, func() error {
		return until(strings.Contains(console(node), "reboot for staged upgrade failed: locked"))
	})
	require.NoError(t, c.Reboot(deadline(t)))
	rebooted(t, node, 3)
	require.Equal(t, "v1.13.10", versionOf(t, c))
}

// here names the containerd whose images are in memory.
func here() *common.ContainerdInstance {
	return &common.ContainerdInstance{Driver: common.ContainerDriver_CONTAINERD,
		Namespace: common.ContainerdNamespace_NS_SYSTEM}
}

// frames reads a stream to its end.
func frames[T any](stream grpc.ServerStreamingClient[T], err error) ([]*T, error) {
	if err != nil {
		return nil, err
	}

	var all []*T

	for {
		frame, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return all, err
		}

		all = append(all, frame)
	}
}

func pull(t *testing.T, c *client.Client, where *common.ContainerdInstance,
	image string) ([]*machineapi.ImageServicePullResponse, error) {
	t.Helper()

	return frames(c.ImageClient.Pull(deadline(t), &machineapi.ImageServicePullRequest{Containerd: where, ImageRef: image}))
}

func TestClaim_8_17_ImagesArePulledIntoOneOfThreePlaces(t *testing.T) {
	t.Parallel()

	_, node, c := configuredOnDisk(t, labcluster.Options{})
	eventually(t, func() error { return until(serviceInfo(t, c, "cri").GetHealth().GetHealthy()) })

	for text, where := range map[string]*common.ContainerdInstance{
		"invalid containerd namespace NS_UNKNOWN":         nil,
		"cannot use CRI namespace with containerd driver": {Namespace: common.ContainerdNamespace_NS_CRI},
		"invalid containerd driver 7":                     {Driver: 7, Namespace: common.ContainerdNamespace_NS_CRI},
	} {
		_, err := pull(t, c, where, newer)
		require.Equal(t, codes.InvalidArgument, client.StatusCode(err))
		require.ErrorContains(t, err, text)
	}

	node.Set(func(f *emulator.Faults) { f.Install = emulator.InstallImagePull })

	_, err := pull(t, c, here(), newer)
	require.Equal(t, codes.NotFound, client.StatusCode(err))
	require.ErrorContains(t, err, "error pulling image: ")

	node.Set(func(f *emulator.Faults) { f.Install = emulator.InstallWorks })

	for reference, name := range map[string]string{
		newer:                         "ghcr.io/siderolabs/installer@sha256:",
		"alpine":                      "docker.io/library/alpine@sha256:",
		"siderolabs/installer:v1.0.0": "docker.io/siderolabs/installer@sha256:",
	} {
		said, err := pull(t, c, here(), reference)
		require.NoError(t, err)
		require.True(t, slices.ContainsFunc(said, func(r *machineapi.ImageServicePullResponse) bool {
			return r.GetPullProgress().GetProgress().GetStatus() == machineapi.ImageServicePullLayerProgress_EXTRACT_COMPLETE
		}))
		require.Contains(t, said[len(said)-1].GetName(), name)
	}

	said, err := pull(t, c, here(), newer)
	require.NoError(t, err)
	require.Len(t, said, 1, "there is nothing left to do")

	list := func(where *common.ContainerdInstance) []string {
		images, err := frames(c.ImageClient.List(deadline(t), &machineapi.ImageServiceListRequest{Containerd: where}))
		require.NoError(t, err)

		var names []string
		for _, image := range images {
			names = append(names, image.GetName())
		}

		return names
	}

	disk := &common.ContainerdInstance{Driver: common.ContainerDriver_CRI, Namespace: common.ContainerdNamespace_NS_SYSTEM}

	require.Len(t, list(here()), 9, "each under three names")
	require.Contains(t, list(here()), newer)
	require.Empty(t, list(disk))

	_, err = pull(t, c, disk, newer)
	require.NoError(t, err)

	_, err = c.ImageClient.Remove(deadline(t), &machineapi.ImageServiceRemoveRequest{Containerd: here(), ImageRef: newer})
	require.NoError(t, err)
	require.NotContains(t, list(here()), newer)

	_, err = c.ImageClient.Remove(deadline(t), &machineapi.ImageServiceRemoveRequest{Containerd: here(), ImageRef: newer})
	require.Equal(t, codes.NotFound, client.StatusCode(err))
	require.ErrorContains(t, err, "image "+newer+" not found")

	verified, err := c.ImageClient.Verify(deadline(t), &machineapi.ImageServiceVerifyRequest{ImageRef: newer})
	require.NoError(t, err)
	require.False(t, verified.GetVerified())
	require.Equal(t, "no matched rule", verified.GetMessage())

	// What is in memory is gone after a reboot.
	require.NoError(t, c.Reboot(deadline(t)))
	rebooted(t, node, 2)
	eventually(t, func() error { _, err := c.Version(deadline(t)); return err })
	require.Empty(t, list(here()))
	eventually(t, func() error { return until(serviceInfo(t, c, "cri").GetHealth().GetHealthy()) })
	require.Contains(t, list(disk), newer)
}

func lifecycleUpgrade(t *testing.T, c *client.Client, image string) ([]*machineapi.LifecycleServiceUpgradeResponse,
	error) {
	t.Helper()

	return frames(c.LifecycleClient.Upgrade(deadline(t), &machineapi.LifecycleServiceUpgradeRequest{
		Containerd: here(), Source: &machineapi.InstallArtifactsSource{ImageName: image},
	}))
}

func TestClaim_8_18_TheLifecycleServiceNeitherPullsNorReboots(t *testing.T) {
	t.Parallel()

	_, node, c := configuredOnDisk(t, labcluster.Options{})

	_, err := lifecycleUpgrade(t, c, "")
	require.Equal(t, codes.InvalidArgument, client.StatusCode(err))
	require.ErrorContains(t, err, "installer image name is required")

	_, err = lifecycleUpgrade(t, c, newer)
	require.Equal(t, codes.Internal, client.StatusCode(err))
	require.ErrorContains(t, err, `upgrade failed: installer image "`+newer+`" not found in containerd store: `)

	_, err = frames(c.LifecycleClient.Install(deadline(t), &machineapi.LifecycleServiceInstallRequest{}))
	require.Equal(t, codes.AlreadyExists, client.StatusCode(err))
	require.ErrorContains(t, err, "machine is already installed")

	_, err = pull(t, c, here(), newer)
	require.NoError(t, err)

	// A failed installer is told by its exit code alone.
	node.Set(func(f *emulator.Faults) { f.Install = emulator.InstallDiskWrite })

	said, err := lifecycleUpgrade(t, c, newer)
	require.NoError(t, err)
	require.EqualValues(t, 1, said[len(said)-1].GetProgress().GetExitCode())

	node.Set(func(f *emulator.Faults) { f.Install = emulator.InstallWorks })

	said, err = lifecycleUpgrade(t, c, newer)
	require.NoError(t, err)
	require.Contains(t, said[0].GetProgress().GetMessage(), "v1.13.10")
	require.IsType(t, &machineapi.LifecycleServiceInstallProgress_ExitCode{},
		said[len(said)-1].GetProgress().GetResponse())
	require.Zero(t, said[len(said)-1].GetProgress().GetExitCode())
	require.Equal(t, 1, node.Boots())
	require.Equal(t, "v1.13.9", versionOf(t, c))

	require.NoError(t, c.Reboot(deadline(t)))
	rebooted(t, node, 2)
	require.Equal(t, "v1.13.10", versionOf(t, c))
}

func TestClaim_8_19_OneInstallationRunsAndItEndsWithoutItsCaller(t *testing.T) {
	t.Parallel()

	_, node, c := configuredOnDisk(t,
		labcluster.Options{LabOptions: emulator.LabOptions{TimeScale: 50},
			Timing: emulator.Timing{Install: 30 * time.Second}})

	_, err := pull(t, c, here(), newer)
	require.NoError(t, err)

	left, leave := context.WithCancel(deadline(t))

	stream, err := c.LifecycleClient.Upgrade(left, &machineapi.LifecycleServiceUpgradeRequest{
		Containerd: here(), Source: &machineapi.InstallArtifactsSource{ImageName: newer},
	})
	require.NoError(t, err)

	_, err = stream.Recv()
	require.NoError(t, err)

	_, err = lifecycleUpgrade(t, c, newer)
	require.Equal(t, codes.FailedPrecondition, client.StatusCode(err))
	require.ErrorContains(t, err, "another installation/upgrade is already in progress")

	leave()
	eventually(t, func() error { return until(strings.Contains(console(node), "installer container exited with code 0")) })

	require.NoError(t, c.Reboot(deadline(t)))
	rebooted(t, node, 2)
	require.Equal(t, "v1.13.10", versionOf(t, c))
}

func TestClaim_8_20_AMachineThatInstallsCanNeitherBeUpgradedNorRolledBack(t *testing.T) {
	t.Parallel()

	_, _, c := stillInstalling(t, labcluster.Options{LabOptions: emulator.LabOptions{TimeScale: 100}})

	_, err := upgrade(t, c, client.WithUpgradeImage(newer))
	require.Equal(t, codes.FailedPrecondition, client.StatusCode(err))
	require.ErrorContains(t, err, "Talos is not installed")

	_, err = lifecycleUpgrade(t, c, newer)
	require.Equal(t, codes.FailedPrecondition, client.StatusCode(err))
	require.ErrorContains(t, err, "machine is not installed")

	_, err = c.MachineClient.Rollback(deadline(t), &machineapi.RollbackRequest{})
	require.Equal(t, codes.FailedPrecondition, client.StatusCode(err))
	require.ErrorContains(t, err, "system disk not found")

	install := func(image, disk string) error {
		_, err := frames(c.LifecycleClient.Install(deadline(t), &machineapi.LifecycleServiceInstallRequest{
			Containerd: here(), Source: &machineapi.InstallArtifactsSource{ImageName: image},
			Destination: &machineapi.InstallDestination{Disk: disk},
		}))

		return err
	}

	for _, test := range []struct {
		image, disk string
		code        codes.Code
		text        string
	}{
		{"", "/dev/vda", codes.InvalidArgument, "installer image name is required"},
		{newer, "", codes.InvalidArgument, "destination disk is required"},
		{newer, "/dev/nope", codes.InvalidArgument, "invalid disk path: lstat /dev/nope: no such file or directory"},
		{newer, "/dev/vda", codes.Internal,
			`installation failed: installer image "` + newer + `" not found in containerd store: `},
	} {
		err := install(test.image, test.disk)
		require.Equal(t, test.code, client.StatusCode(err), test.text)
		require.ErrorContains(t, err, test.text)
	}
}

func TestClaim_8_21_ASnapshotIsADatabaseWithItsHashAtTheEnd(t *testing.T) {
	t.Parallel()

	_, c := three(t, 1)

	stream, err := c.EtcdSnapshot(deadline(t), &machineapi.EtcdSnapshotRequest{})
	require.NoError(t, err)

	snapshot, err := io.ReadAll(stream)
	require.NoError(t, err)
	require.Equal(t, sha256.Size, len(snapshot)%512, "how etcd's tools tell a snapshot from a plain database")

	database, digest := snapshot[:len(snapshot)-sha256.Size], snapshot[len(snapshot)-sha256.Size:]
	sum := sha256.Sum256(database)
	require.Equal(t, sum[:], digest)

	path := filepath.Join(t.TempDir(), "db")
	require.NoError(t, os.WriteFile(path, database, 0o600))

	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	require.NoError(t, err)

	defer db.Close()

	require.NoError(t, db.View(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("members")).ForEach(func(_, described []byte) error {
			require.Contains(t, string(described), `"name":"cp1"`)

			return nil
		})
	}))
}

func TestClaim_8_22_AMachineIsUpgradedFromOneLineOfReleasesToTheNext(t *testing.T) {
	t.Parallel()

	options := labcluster.Options{TalosVersion: "v1.12.1"}
	_, node, c := configuredOnDisk(t, options)
	require.Equal(t, "v1.12.1", versionOf(t, c))

	_, err := pull(t, c, here(), newer)
	require.Equal(t, codes.Unimplemented, client.StatusCode(err))

	_, err = upgrade(t, c, client.WithUpgradeImage(newer), client.WithUpgradeForce(true))
	require.NoError(t, err)
	rebooted(t, node, 2)
	require.Equal(t, "v1.13.10", versionOf(t, c))

	_, err = pull(t, c, here(), newer)
	require.NoError(t, err)
}

func TestClaim_8_24_ANewSystemThatDoesNotComeUpIsReplacedByTheOneBefore(t *testing.T) {
	t.Parallel()

	for before, after := range map[string]string{"v1.12.1": "v1.13.9", "v1.13.9": "v1.14.1", "v1.14.1": "v1.14.2"} {
		t.Run(before, func(t *testing.T) {
			t.Parallel()

			var consoles syncbuffer.Buffer

			_, node, c := configuredOnDisk(t, labcluster.Options{TalosVersion: before,
				LabOptions: emulator.LabOptions{Logger: zerolog.New(&consoles)}})
			node.Set(func(f *emulator.Faults) { f.NewSystemFails = true })

			image := "factory.talos.dev/metal-installer/" + schematic + ":" + after

			if before == "v1.12.1" {
				_, err := upgrade(t, c, client.WithUpgradeImage(image), client.WithUpgradePreserve(true))
				require.NoError(t, err)
			} else {
				_, err := pull(t, c, here(), image)
				require.NoError(t, err)

				said, err := lifecycleUpgrade(t, c, image)
				require.NoError(t, err)
				require.Zero(t, said[len(said)-1].GetProgress().GetExitCode())
				require.NoError(t, c.Reboot(deadline(t)))
			}

			rebooted(t, node, 3)
			require.Contains(t, consoles.String(), "reverting failed upgrade, switching to")
			require.Equal(t, before, versionOf(t, c))
			require.Empty(t, extensions(t, c)["schematic"])

			// Only the boot of a new system fails.
			require.NoError(t, c.Reboot(deadline(t)))
			rebooted(t, node, 4)
		})
	}
}

func TestClaim_8_25_APullThatTakesTooLongFailsAndTheNextOneMayNot(t *testing.T) {
	t.Parallel()

	_, node, c := configuredOnDisk(t, labcluster.Options{})
	node.Set(func(f *emulator.Faults) { f.Install, f.InstallTimes = emulator.InstallImageSlow, 2 })

	said, err := pull(t, c, here(), newer)
	require.NotEmpty(t, said)
	require.Equal(t, codes.DeadlineExceeded, client.StatusCode(err))
	require.ErrorContains(t, err, `failed to pull image "`+newer+`": context deadline exceeded`)

	_, err = upgrade(t, c, client.WithUpgradeImage(newer), client.WithUpgradePreserve(true))
	require.Equal(t, codes.DeadlineExceeded, client.StatusCode(err))
	require.ErrorContains(t, err, `error validating installer image "`+newer+`": `)
	require.ErrorContains(t, err, "context deadline exceeded")

	said, err = pull(t, c, here(), newer)
	require.NoError(t, err)

	var offsets []int64
	for _, one := range said {
		if progress := one.GetPullProgress().GetProgress(); progress != nil {
			offsets = append(offsets, progress.GetOffset())
		}
	}

	require.IsIncreasing(t, offsets[:5])
}
