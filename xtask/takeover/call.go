package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"
)

// callWithin is longer than the slowest request of a cloud.
const callWithin = 60 * time.Second

var client = http.Client{Timeout: callWithin}

// refusal is an answer that is no success.
type refusal struct {
	line   string
	status int
	text   string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("%s: %d %s", r.line, r.status, r.text)
}

// isAbsent reports whether the cloud said that an object does not exist.
func isAbsent(err error) bool {
	var refused *refusal
	return errors.As(err, &refused) && refused.status == http.StatusNotFound
}

// send sends a request and returns the body of a successful answer.
func send(request *http.Request) ([]byte, http.Header, error) {
	response, err := client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, nil, err
	}
	if response.StatusCode >= http.StatusBadRequest {
		line := request.Method + " " + request.URL.Path
		return nil, nil, &refusal{line: line, status: response.StatusCode, text: string(body)}
	}
	return body, response.Header, nil
}

// sendJSON sends a request with a JSON body, and decodes the JSON answer. Both may be nil.
func sendJSON(ctx context.Context, method, url string, header http.Header, body, answer any) (http.Header, error) {
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		reader = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, url, reader)
	if err != nil {
		return nil, err
	}
	if header != nil {
		request.Header = header.Clone()
	}
	request.Header.Set("Content-Type", "application/json")
	text, answered, err := send(request)
	if err != nil || answer == nil {
		return answered, err
	}
	return answered, json.Unmarshal(text, answer)
}

// pause waits, unless the call ends before.
func pause(ctx context.Context, duration time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(duration):
		return nil
	}
}

// unimplemented answers the calls that a provider does not have.
type unimplemented struct{}

func (unimplemented) InitializeMachine(context.Context, *driver.InitializeMachineRequest) (*driver.InitializeMachineResponse, error) {
	return nil, status.Error(codes.Unimplemented, "the provider initializes no machines")
}

func (unimplemented) GetVolumeIDs(context.Context, *driver.GetVolumeIDsRequest) (*driver.GetVolumeIDsResponse, error) {
	return nil, status.Error(codes.Unimplemented, "the provider knows no volumes")
}

// asStatus gives an error of a call the code NotFound if an object is absent, and otherwise the
// given code.
func asStatus(err error, otherwise codes.Code) error {
	switch {
	case err == nil:
		return nil
	case isAbsent(err):
		return status.Error(codes.NotFound, err.Error())
	}
	var coded *status.Status
	if errors.As(err, &coded) {
		return err
	}
	return status.Error(otherwise, err.Error())
}
