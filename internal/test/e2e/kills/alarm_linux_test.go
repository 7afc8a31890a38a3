package kills_test

import (
	"strings"
	"sync"
	"time"
)

// alarm goes off once, at its moment.
type alarm struct {
	moment moment
	ring   func()

	mu    sync.Mutex
	armed bool
	left  int
	rung  bool
	done  chan struct{} // closed when ring has returned
}

func newAlarm(moment moment, ring func()) *alarm {
	return &alarm{moment: moment, ring: ring, left: moment.count, done: make(chan struct{})}
}

// started is told when the process has been started.
func (a *alarm) started() {
	if a.moment.step == beginning {
		a.arm()
	}
}

// line is told of every line that the program writes to stderr.
func (a *alarm) line(text string) {
	if a.moment.step != beginning && strings.Contains(text, a.moment.step+" started") {
		a.arm()
	} else {
		a.happened(line)
	}
}

func (a *alarm) arm() {
	a.mu.Lock()

	if a.armed {
		a.mu.Unlock()

		return
	}

	a.armed = true
	a.mu.Unlock()

	if a.moment.event == tick {
		a.after(time.Duration(a.moment.count)*time.Millisecond + a.moment.pause)
	} else if a.moment.count == 0 {
		a.after(a.moment.pause)
	}
}

// happened counts an event. Whoever reports it waits while the signal is sent, if there is no pause.
func (a *alarm) happened(what event) {
	a.mu.Lock()
	counts := a.armed && what == a.moment.event && a.left > 0

	if counts {
		a.left--
	}

	due := counts && a.left == 0
	a.mu.Unlock()

	if due {
		a.after(a.moment.pause)
	}
}

func (a *alarm) after(pause time.Duration) {
	if pause == 0 {
		a.sound()
	} else {
		time.AfterFunc(pause, a.sound)
	}
}

func (a *alarm) sound() {
	a.mu.Lock()
	first := !a.rung
	a.rung = true
	a.mu.Unlock()

	if first {
		defer close(a.done)

		a.ring()
	}
}

// off keeps the alarm from going off any more. One that is going off has done so when off returns.
func (a *alarm) off() {
	a.mu.Lock()
	rung := a.rung
	a.rung = true
	a.mu.Unlock()

	if rung {
		<-a.done
	}
}
