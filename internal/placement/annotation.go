package placement

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// maxAnnotationLength bounds what is parsed, and kept, of an annotation that a tenant wrote: a hundred super clusters
// with names of 60 characters.
const maxAnnotationLength = 8 * 1024

// Encode writes placements in the form of the annotation: {"r1":1,"r2":1}, sorted, "" for none. A placement that leaves
// as a whole is left out.
func Encode(placements []schedulerv1alpha1.ClusterPlacement) string {
	counts := make(map[string]int32, len(placements))
	for i := range placements {
		if p := &placements[i]; p.Slices > 0 || p.Leaving == nil {
			counts[p.Cluster] = p.Slices
		}
	}
	if len(counts) == 0 {
		return ""
	}
	text, err := json.Marshal(counts)
	if err != nil {
		panic(err) // a map from string to int32 can always be encoded
	}
	return string(text)
}

// Summary writes placements in one line for people: r1=1,r2=1.
func Summary(placements []schedulerv1alpha1.ClusterPlacement) string {
	parts := make([]string, len(placements))
	for i := range placements {
		parts[i] = fmt.Sprintf("%s=%d", placements[i].Cluster, placements[i].Slices)
	}
	return strings.Join(parts, ",")
}

// Decode reads the form that Encode writes.
func Decode(text string) (map[string]int32, error) {
	if len(text) > maxAnnotationLength {
		return nil, fmt.Errorf("placements are longer than %d characters", maxAnnotationLength)
	}
	var counts map[string]int32
	if err := json.Unmarshal([]byte(text), &counts); err != nil {
		return nil, fmt.Errorf(`placements are not a JSON object such as {"r1":1,"r2":1}: %w`, err)
	}
	for _, cluster := range slices.Sorted(maps.Keys(counts)) {
		if cluster == "" || counts[cluster] < 0 {
			return nil, fmt.Errorf("placements name %q with %d slices", cluster, counts[cluster])
		}
	}
	return counts, nil
}
