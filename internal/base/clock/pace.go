package clock

import (
	"runtime"
	"sync"
	"time"
)

const (
	// beat is how often the pace looks whether the process gets to run.
	beat = 5 * time.Millisecond
	// allowance is how much of the wall's time may pass for a scaled clock between two beats.
	allowance = 2 * beat
)

// pace counts the wall's time in which this process could run. A scaled clock goes by it: minutes of its time pass in
// the milliseconds for which a busy machine lets a goroutine wait, and nobody's budget should run out meanwhile.
type pace struct {
	mu     sync.Mutex
	beaten time.Time     // the last beat
	passed time.Duration // up to then
}

var (
	steady     pace
	keepSteady sync.Once
)

// start makes the beat of the process's pace; it goes on for as long as the process.
func (p *pace) start() {
	p.hit(time.Now())

	var timer *time.Timer

	ready := make(chan struct{})
	timer = time.AfterFunc(beat, func() {
		<-ready
		// Behind every other goroutine that can run: a beat in time shows that they get their turns.
		runtime.Gosched()
		p.hit(time.Now())
		timer.Reset(beat)
	})

	close(ready)
}

// hit is one beat.
func (p *pace) hit(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if !p.beaten.IsZero() {
		p.passed += p.since(now)
	}

	p.beaten = now
}

// read is how much time has passed.
func (p *pace) read(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.passed + p.since(now)
}

// since is how much of the time after the last beat counts.
func (p *pace) since(now time.Time) time.Duration {
	return min(max(now.Sub(p.beaten), 0), allowance)
}
