package network

import (
	"net"
	"sync"
	"time"
)

// Wire is one accepted connection, which faults can freeze or cut.
type Wire struct {
	net.Conn

	port *Port

	mu      sync.Mutex
	frozen  bool
	closed  bool
	shaking bool  // the TLS handshake is under way
	rude    bool  // a client that is refused gets a reset instead of an alert
	greeted bool  // the node has sent its part of the handshake
	stalled int64 // bytes still let in before the line goes dead; 0 means no limit
	thawed  chan struct{}
}

// Read implements net.Conn; on a frozen wire it hangs until the wire is cut.
func (w *Wire) Read(buf []byte) (int, error) {
	n, err := w.Conn.Read(buf)

	w.mu.Lock()
	frozen := w.frozen

	if w.stalled > 0 {
		w.stalled -= int64(n)
		if w.stalled <= 0 {
			w.frozen, frozen = true, true

			go w.port.nic.Hold(w)
		}
	}
	w.mu.Unlock()

	if frozen {
		<-w.thawed

		return 0, net.ErrClosed
	}

	return n, err
}

// Write implements net.Conn; what is written to a frozen wire is lost, and so is the alert of a rude one.
func (w *Wire) Write(buf []byte) (int, error) {
	w.mu.Lock()
	lost := w.frozen || (w.shaking && w.rude && w.greeted)
	w.greeted = true
	w.mu.Unlock()

	if lost {
		return len(buf), nil
	}

	return w.Conn.Write(buf)
}

// SetDeadline implements net.Conn. A wire that was let go keeps the deadline that ended its reads.
func (w *Wire) SetDeadline(at time.Time) error {
	if w.isReleased() {
		return nil
	}

	return w.Conn.SetDeadline(at)
}

// Shake notes that a TLS handshake begins. A rude wire that is closed in between is reset.
func (w *Wire) Shake(rude bool) {
	w.mu.Lock()
	w.shaking, w.rude = true, rude
	w.mu.Unlock()

	if w.port.isOver() {
		w.letGo()
	}
}

// letGo ends the reads on a wire: it is cut, unless it is frozen.
func (w *Wire) letGo() {
	if w.isFrozen() {
		w.unblock()
	} else {
		w.Cut()
	}
}

// Shaken notes that the handshake is over.
func (w *Wire) Shaken() {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.shaking = false
}

func (w *Wire) isShaking() bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.shaking
}

// Close implements net.Conn. A frozen wire keeps its socket, since a machine that vanished sends no FIN.
func (w *Wire) Close() error {
	w.mu.Lock()
	frozen, closed, rude := w.frozen, w.closed, w.shaking && w.rude
	w.closed = true
	w.mu.Unlock()

	if closed {
		return nil
	}

	if rude && !frozen {
		w.Cut()

		return nil
	}

	w.unblock()

	if frozen {
		return nil
	}

	w.forget()

	return w.Conn.Close()
}

func (w *Wire) isFrozen() bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.frozen
}

// Freeze lets nothing through from now on, as when a machine vanishes.
func (w *Wire) Freeze() {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.frozen = true
}

// Cut resets the connection, frozen or not.
func (w *Wire) Cut() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()

	if tcp, ok := w.Conn.(*net.TCPConn); ok {
		tcp.SetLinger(0) //nolint:errcheck // then it ends with FIN instead of RST
	}

	w.Conn.Close() //nolint:errcheck // it is gone either way
	w.unblock()
	w.forget()
}

// unblock ends the reads on a wire, those of a frozen one too, without a word to the other side.
func (w *Wire) unblock() {
	w.mu.Lock()
	select {
	case <-w.thawed:
	default:
		close(w.thawed)
	}
	w.mu.Unlock()

	w.Conn.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // fails on a closed connection, which reads nothing anyway
}

func (w *Wire) isReleased() bool {
	select {
	case <-w.thawed:
		return true
	default:
		return false
	}
}

func (w *Wire) forget() {
	w.port.mu.Lock()
	defer w.port.mu.Unlock()

	delete(w.port.conns, w)
}
