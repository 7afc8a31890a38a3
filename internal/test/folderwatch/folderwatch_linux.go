package folderwatch

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Watch tells of every change of a file in folders, and in those that are made in them, until the test ends.
func Watch(t *testing.T, changed func(name string), folders ...string) {
	t.Helper()

	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	require.NoError(t, err)

	wake := make([]int, 2)
	require.NoError(t, unix.Pipe2(wake, unix.O_CLOEXEC))

	watch := &folderWatch{fd: fd, changed: changed, folders: map[int32]string{}}
	for _, folder := range folders {
		require.NoError(t, watch.add(folder))
	}

	var reading sync.WaitGroup

	reading.Go(func() { watch.read(wake[0]) })
	t.Cleanup(func() {
		_ = unix.Close(wake[1])

		reading.Wait()

		_, _ = unix.Close(wake[0]), unix.Close(fd)
	})
}

// folderWatch is an inotify instance.
type folderWatch struct {
	fd      int
	changed func(name string)
	folders map[int32]string
}

func (w *folderWatch) add(folder string) error {
	wd, err := unix.InotifyAddWatch(w.fd, folder,
		unix.IN_CREATE|unix.IN_MODIFY|unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO|unix.IN_DELETE|unix.IN_ATTRIB)
	if err == nil {
		w.folders[int32(wd)] = folder //nolint:gosec // the kernel's own type
	}

	return err
}

// read passes on what happens until the other end of the pipe is closed.
func (w *folderWatch) read(wake int) {
	buffer := make([]byte, 1<<16)

	for {
		fds := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}, {Fd: int32(wake), Events: unix.POLLIN}} //nolint:gosec // descriptors fit
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {                                   //nolint:errorlint // a number
			return
		}

		if fds[1].Revents != 0 {
			return
		}

		if n, err := unix.Read(w.fd, buffer); err == nil {
			w.pass(buffer[:n])
		}
	}
}

func (w *folderWatch) pass(events []byte) {
	for len(events) >= unix.SizeofInotifyEvent {
		event := (*unix.InotifyEvent)(unsafe.Pointer(&events[0])) //nolint:gosec // the kernel's own layout
		name := strings.TrimRight(string(events[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+event.Len]), "\x00")
		events = events[unix.SizeofInotifyEvent+event.Len:]

		if event.Mask&unix.IN_CREATE != 0 && event.Mask&unix.IN_ISDIR != 0 {
			_ = w.add(filepath.Join(w.folders[event.Wd], name)) // it may be gone already
		}

		w.changed(name)
	}
}
