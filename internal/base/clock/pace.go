package clock

import (
	"runtime"
	"sync"
	"time"
)

const (
	// beatScaled is how often the pace looks whether the process gets to run, in the time of its fastest clock.
	beatScaled = 100 * time.Millisecond
	// Between these it is on the wall clock, however fast that clock runs: a beat costs some 100 µs.
	shortestBeat = 5 * time.Millisecond
	longestBeat  = 500 * time.Millisecond
	// allowance is how many beats' time may pass for a scaled clock between two of them.
	allowance = 2
)

// beatFor is the beat that a clock needs which runs factor times as fast as the wall's.
func beatFor(factor float64) time.Duration {
	return min(max(time.Duration(float64(beatScaled)/factor), shortestBeat), longestBeat)
}

// pace counts the wall's time in which this process could run. A scaled clock goes by it: minutes of its time pass in
// the milliseconds for which a busy machine lets a goroutine wait, and nobody's budget should run out meanwhile.
type pace struct {
	mu     sync.Mutex
	beat   time.Duration
	timer  *time.Timer   // makes the next beat; nil before there is a clock
	beaten time.Time     // the last beat
	passed time.Duration // up to then
}

var steady pace

// keep makes a beat at least this often; it goes on for as long as the process.
func (p *pace) keep(beat time.Duration) {
	p.hit(time.Now())

	p.mu.Lock()
	defer p.mu.Unlock()

	switch {
	case p.timer == nil:
		p.beat, p.timer = beat, time.AfterFunc(beat, p.goOn)
	case beat < p.beat:
		p.beat = beat
		p.timer.Reset(beat)
	}
}

// goOn is one beat that is followed by another.
func (p *pace) goOn() {
	// Behind every other goroutine that can run: a beat in time shows that they get their turns.
	runtime.Gosched()
	p.hit(time.Now())

	p.mu.Lock()
	defer p.mu.Unlock()

	p.timer.Reset(p.beat)
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
	return min(max(now.Sub(p.beaten), 0), allowance*p.beat)
}
