package tenantclient

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// maxError bounds what is read of an error, whatever the policy says: its text is copied by each who adds a word,
	// and logged. A tenant's webhook writes it.
	maxError = 64 << 10
	// maxMessage bounds the text of an error that comes out, with the mark that it was cut.
	maxMessage = 4 << 10
	// maxText is maxMessage of an error that is no Status, of which client-go takes 2048 bytes.
	maxText = 2 << 10
	// maxReason bounds the reason of a Status, which is one word.
	maxReason = 64
)

// shorten reads an answer that is an error, and makes it a short one.
func shorten(response *http.Response, isProtobuf bool) error {
	defer response.Body.Close() //nolint:errcheck // what was not read is not used
	text, err := io.ReadAll(io.LimitReader(response.Body, maxError+1))
	if err != nil {
		return err //nolint:wrapcheck // a transport changes nothing
	}
	short, kind := []byte(nil), runtime.ContentTypeJSON
	if status := statusIn(text, isProtobuf); status != nil && len(text) <= maxError {
		short, err = json.Marshal(shortStatus(status))
	} else {
		length := strconv.Itoa(len(text))
		switch {
		case response.ContentLength > maxError:
			length = strconv.FormatInt(response.ContentLength, 10)
		case len(text) > maxError:
			length = "more than " + strconv.Itoa(maxError)
		}
		short, kind = []byte(cut(string(text), maxText, length)), "text/plain"
	}
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(short)), int64(len(short))
	response.Header.Del("Content-Length")
	response.Header.Set("Content-Type", kind)
	return err //nolint:wrapcheck // it is nil: a Status is JSON
}

// statusIn returns the Status that a text is, nil if it is none.
func statusIn(text []byte, isProtobuf bool) *metav1.Status {
	status := &metav1.Status{}
	if !isProtobuf {
		if utiljson.Unmarshal(text, status) != nil || status.Kind != "Status" {
			return nil
		}
		return status
	}
	unknown := runtime.Unknown{}
	raw, isObject := bytes.CutPrefix(text, []byte(magic))
	if !isObject || unknown.Unmarshal(raw) != nil || unknown.Kind != "Status" || status.Unmarshal(unknown.Raw) != nil {
		return nil
	}
	return status
}

// shortStatus returns a Status as it is, but for what is too long in it.
func shortStatus(status *metav1.Status) *metav1.Status {
	status.Kind, status.APIVersion = "Status", "v1"
	status.Message = cut(status.Message, maxMessage, strconv.Itoa(len(status.Message)))
	if status.Size()-len(status.Message) <= maxMessage {
		return status
	}
	short := &metav1.Status{TypeMeta: status.TypeMeta, Status: metav1.StatusFailure, Message: status.Message, Code: status.Code}
	short.Reason = status.Reason[:min(len(status.Reason), maxReason)]
	if status.Details != nil {
		short.Details = &metav1.StatusDetails{RetryAfterSeconds: status.Details.RetryAfterSeconds}
	}
	return short
}

// cut returns a text that is no longer than most, and says how long it was if it was longer.
func cut(text string, most int, length string) string {
	if len(text) <= most {
		return text
	}
	mark := fmt.Sprintf("… (cut, of %s bytes)", length)
	return strings.ToValidUTF8(text[:most-len(mark)], "") + mark
}

// shortEvent returns an event of a watch, without its frame: the same slice, but for the text of an error.
func shortEvent(text []byte, isProtobuf bool) ([]byte, error) {
	if len(text) <= maxMessage {
		return text, nil
	}
	var event metav1.WatchEvent
	var err error
	if isProtobuf {
		err = event.Unmarshal(text)
	} else {
		err = utiljson.Unmarshal(text, &event)
	}
	if err != nil || event.Type != string(watch.Error) {
		return text, nil //nolint:nilerr // the client says what is wrong with it
	}
	status := statusIn(event.Object.Raw, isProtobuf)
	if status == nil { // client-go writes out what else it may be
		status = &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: string(event.Object.Raw)}
	}
	status = shortStatus(status)
	if !isProtobuf {
		event.Object.Raw, err = json.Marshal(status)
		if err != nil {
			return nil, err //nolint:wrapcheck // it is nil: a Status is JSON
		}
		return json.Marshal(event) //nolint:wrapcheck // as above
	}
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: status.APIVersion, Kind: status.Kind}}
	if unknown.Raw, err = status.Marshal(); err != nil {
		return nil, err //nolint:wrapcheck // as above
	}
	raw, err := unknown.Marshal()
	if err != nil {
		return nil, err //nolint:wrapcheck // as above
	}
	event.Object.Raw = append([]byte(magic), raw...)
	return event.Marshal() //nolint:wrapcheck // as above
}
