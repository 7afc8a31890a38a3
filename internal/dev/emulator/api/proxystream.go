package api

import (
	"context"
	"errors"
	"io"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// forwardStream is forwardUnary for streams: frames are marked, errors are frames.
func (g *gatekeeper) forwardStream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler) error {
	targets, fan, err := g.targets(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}

	if len(targets) == 0 {
		return handler(service, stream)
	}

	input, output, err := messagesOf(info.FullMethod)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()

	relays := make([]*relay, 0, len(targets))
	for _, target := range targets {
		relays = append(relays, g.openRelay(ctx, target, info, output))
	}

	go broadcast(stream, input, relays)

	switch {
	case !fan:
		return relays[0].pump(func(frame proto.Message) error { return stream.SendMsg(frame) })
	case info.IsServerStream:
		return interleave(stream, relays)
	default:
		return mergeStreams(stream, output, relays)
	}
}

// relay is the stream to one of the nodes that a call is forwarded to.
type relay struct {
	node   string
	output protoreflect.MessageType
	stream grpc.ClientStream
	close  func()
	err    error // why there is no stream
}

func (g *gatekeeper) openRelay(ctx context.Context, target string, info *grpc.StreamServerInfo,
	output protoreflect.MessageType) *relay {
	opened := &relay{node: target, output: output, close: func() {}}

	conn, ctx, err := g.dialNode(ctx, target)
	if err != nil {
		opened.err = err

		return opened
	}

	opened.close = func() { conn.Close() } //nolint:errcheck // the call is over
	// A single reply is read like a stream of one.
	opened.stream, opened.err = conn.NewStream(ctx,
		&grpc.StreamDesc{ServerStreams: true, ClientStreams: info.IsClientStream}, info.FullMethod)

	return opened
}

// broadcast hands what the caller sends to all nodes. A node that has ended its stream tells why where its frames are
// read.
func broadcast(caller grpc.ServerStream, input protoreflect.MessageType, relays []*relay) {
	for {
		frame := input.New().Interface()
		err := caller.RecvMsg(frame)

		for _, to := range relays {
			switch {
			case to.err != nil:
			case err != nil:
				to.stream.CloseSend() //nolint:errcheck // never fails
			default:
				to.stream.SendMsg(frame) //nolint:errcheck // as above
			}
		}

		if err != nil {
			return
		}
	}
}

// pump hands every frame of the node on. It returns the error with which the node ends the stream.
func (r *relay) pump(send func(proto.Message) error) error {
	defer r.close()

	if r.err != nil {
		return r.err
	}

	for {
		frame := r.output.New().Interface()

		if err := r.stream.RecvMsg(frame); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}

		if err := send(frame); err != nil {
			return err
		}
	}
}

// interleave sends the marked frames of all nodes as they come. It ends when all of them have ended.
func interleave(caller grpc.ServerStream, relays []*relay) error {
	frames, done := make(chan proto.Message), make(chan struct{})

	for _, from := range relays {
		go func() {
			defer func() { done <- struct{}{} }()

			err := from.pump(func(frame proto.Message) error {
				frames <- withMetadata(frame.ProtoReflect(), &common.Metadata{Hostname: from.node}).Interface()

				return nil
			})
			if err != nil {
				frames <- withMetadata(from.output.New(), errorMetadata(from.node, err)).Interface()
			}
		}()
	}

	var lost error

	for running := len(relays); running > 0; {
		select {
		case frame := <-frames:
			if lost == nil {
				lost = caller.SendMsg(frame)
			}
		case <-done:
			running--
		}
	}

	return lost
}

// mergeStreams makes one reply of those of all nodes, for methods in which only the caller streams.
func mergeStreams(caller grpc.ServerStream, output protoreflect.MessageType, relays []*relay) error {
	merged := output.New()
	replies := make(chan nodeReply)

	for _, from := range relays {
		go func() {
			answer := nodeReply{node: from.node, reply: output.New().Interface()}

			answer.err = from.pump(func(frame proto.Message) error {
				answer.reply = frame

				return nil
			})
			replies <- answer
		}()
	}

	for range relays {
		mergeReply(merged, <-replies)
	}

	return caller.SendMsg(merged.Interface())
}
