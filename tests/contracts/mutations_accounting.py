"""Source mutations of accounting: what is wrong, and the test that has to fail with it."""

BUGS = [
    {
        "name": "losses_on_a_fixed_grid",
        "edits": [
            (
                "graphveil.privacy.accountant:_curve",
                "interval or _fitting(total)",
                "interval or CERTIFY_INTERVAL",
            )
        ],
        "test": "tests/release/test_calibrate.py::"
        "test_small_epsilons_need_no_more_noise_than_dp_accounting_certifies[120-5880-0.02]",
    },
    {
        "name": "coarse_search_for_small_losses",
        "edits": [
            (
                "graphveil.privacy.accountant:search_interval",
                "return min(SEARCH_INTERVAL, _SEARCH_SHARE * mu / math.sqrt(max(1, count)))",
                "return SEARCH_INTERVAL",
            )
        ],
        "test": "tests/release/test_calibrate.py::"
        "test_small_epsilons_need_no_more_noise_than_dp_accounting_certifies[1200-98-0.003]",
    },
    {
        "name": "edges_are_added_where_none_is_kept",
        "edits": [
            (
                "graphveil.mechanisms.edge_response:EdgeResponse.add",
                "min(self.keep, int(exact.to_integral_value(ROUND_CEILING)))",
                "int(exact.to_integral_value(ROUND_CEILING))",
            )
        ],
        "test": "tests/mechanisms/test_edge_response.py::"
        "test_no_share_lets_a_ratio_exceed_its_bound[1e-20-1.0]",
    },
    {
        "name": "delta_without_a_proof",
        "edits": [
            (
                "graphveil.privacy.calibration:check_proved_delta",
                "DELTA_RANGE[0] <= delta",
                "0 <= delta",
            )
        ],
        "test": "tests/test_delta_range.py::test_a_delta_without_a_proof_is_rejected[1e-50-plan]",
    },
]
