package feeding

import (
	"encoding/json"
	"fmt"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Means returns the mean of each metric over the tasks that have it, weighted by the records of each task.
func Means(results map[string]*clusterpb.FeedResult) (map[string]float64, error) {
	sums, weights := map[string]float64{}, map[string]float64{}
	for task, r := range results {
		var metrics map[string]float64
		if err := json.Unmarshal([]byte(r.GetJson()), &metrics); err != nil {
			return nil, fmt.Errorf("read the metrics of %s: %w", task, err)
		}
		for name, value := range metrics {
			sums[name] += value * float64(r.GetRows())
			weights[name] += float64(r.GetRows())
		}
	}
	means := map[string]float64{}
	for name, sum := range sums {
		if weights[name] > 0 {
			means[name] = sum / weights[name]
		}
	}
	return means, nil
}
