"""Queueing formulas: against exact results, against each other, and at their ends."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cm384model.laws.batch_service import batch_service_ttft
from cm384model.laws.greedy_batch import greedy_batch_ttft, greedy_batch_ttft_percentile, greedy_batch_wait
from cm384model.laws.queueing import (
    full_batch_wait,
    utilisation,
    wait_allen_cunneen,
    wait_chance,
    wait_kingman,
    wait_mdc,
    wait_mmc,
    wait_percentile,
)

LOAD = st.floats(0.01, 0.95)
POISSON = {"arrival_scv": 1.0}
LOG_FACTORIALS = np.array([math.lgamma(n + 1.0) for n in range(1000)])


def erlang_c_by_definition(load, servers):
    """The textbook sum, in exact integers and fractions as far as floats allow."""
    last = load**servers / math.factorial(servers) * servers / (servers - load)
    return last / (sum(load**j / math.factorial(j) for j in range(servers)) + last)


def greedy_by_chain(rate, limit, first, full, states=240):
    """Mean wait and TTFT of one instance with Poisson arrivals, from the chain of queues at batch ends."""
    slope = (full - first) / max(limit - 1, 1)
    times = first + slope * np.arange(limit)
    chain = np.zeros((states, states))
    for queue in range(states):
        size = min(max(queue, 1), limit)
        left = max(queue - limit, 0)
        mean = rate * times[size - 1]
        count = np.arange(states - left)
        logs = count * np.log(mean) - mean - LOG_FACTORIALS[: len(count)]
        chain[queue, left:] = np.exp(logs)
        chain[queue, -1] += max(0.0, 1 - chain[queue].sum())
    system = np.vstack([(chain.T - np.eye(states))[:-1], np.ones(states)])
    share = np.linalg.solve(system, np.eye(states)[-1])
    queue = np.arange(states)
    size = np.clip(queue, 1, limit)
    taken = times[size - 1]
    left = np.maximum(queue - limit, 0)
    cycle = share @ taken + share[0] / rate
    in_queue = share @ (taken * left + rate * taken**2 / 2) / cycle
    wait = in_queue / rate
    return wait, wait + share @ (size * taken) / (share @ size)


@given(load=LOAD, servers=st.integers(1, 80))
def test_erlang_c_is_the_textbook_sum(load, servers):
    assert wait_chance(load * servers, servers) == pytest.approx(
        erlang_c_by_definition(load * servers, servers), rel=1e-9
    )


@pytest.mark.parametrize("servers", [100, 500, 2000])
def test_erlang_c_holds_for_hundreds_of_servers(servers):
    """Halfin and Whitt (1981): at a slack of beta root c the chance tends to a constant."""
    beta = 1.0
    density = math.exp(-(beta**2) / 2) / math.sqrt(2 * math.pi)
    limit = 1 / (1 + beta * (0.5 * (1 + math.erf(beta / math.sqrt(2)))) / density)
    chance = wait_chance(servers - beta * math.sqrt(servers), servers)
    assert chance == pytest.approx(limit, rel=1.5 / math.sqrt(servers))


def test_servers_and_loads_broadcast():
    servers = np.array([1, 5, 300])
    loads = np.array([[0.2], [0.8]]) * servers
    grid = wait_chance(loads, servers)
    assert grid.shape == (2, 3)
    assert grid[1, 2] == wait_chance(240.0, 300)
    assert wait_chance(7.0, 5) == pytest.approx(1, rel=1e-12)


@given(load=LOAD, service=st.floats(1e-3, 1e3))
def test_one_server_is_pollaczek_and_khinchine(load, service):
    rate = load / service
    exact = load * service / (2 * (1 - load))
    assert wait_mmc(rate, service, 1) == pytest.approx(2 * exact, rel=1e-9)
    assert wait_mdc(rate, service, 1) == pytest.approx(exact, rel=1e-9)
    assert wait_kingman(rate, service, arrival_scv=1, service_scv=0) == pytest.approx(exact, rel=1e-9)
    assert greedy_batch_wait(rate, 1, 1, service, service, **POISSON) == pytest.approx(exact, rel=1e-6)
    assert full_batch_wait(rate, 1, 1, service, **POISSON) == pytest.approx(exact, rel=1e-9)


@given(load=LOAD, servers=st.integers(1, 64), arrival=st.floats(0, 9), service=st.floats(0, 9))
def test_allen_and_cunneen_scale_the_wait_of_exponential_service(load, servers, arrival, service):
    queue = (load * servers, 1.0, servers)
    mean = wait_allen_cunneen(*queue, arrival_scv=arrival, service_scv=service)
    assert mean == pytest.approx((arrival + service) / 2 * wait_mmc(*queue), rel=1e-12)
    if servers == 1:
        assert mean == pytest.approx(
            wait_kingman(load, 1.0, arrival_scv=arrival, service_scv=service), rel=1e-9
        )


@given(load=LOAD, servers=st.integers(1, 64))
def test_constant_service_waits_between_half_and_all_of_exponential_service(load, servers):
    assert 0.5 * wait_mmc(load * servers, 1.0, servers) <= wait_mdc(load * servers, 1.0, servers) * (
        1 + 1e-12
    )
    if load >= 0.5:
        assert wait_mdc(load * servers, 1.0, servers) <= wait_mmc(load * servers, 1.0, servers)


def test_the_percentile_of_exponential_service_is_exact():
    """P(W > t) = C exp(-(c mu - lambda) t)."""
    wait, chance = wait_mmc(8.0, 0.5, 5), wait_chance(4.0, 5)
    p95 = wait_percentile(wait, chance, share=0.95)
    assert chance * math.exp(-(5 / 0.5 - 8.0) * p95) == pytest.approx(0.05, rel=1e-12)
    assert wait_percentile(wait, chance, share=0.3) == 0


@pytest.mark.parametrize("limit", [2, 3, 8, 24])
@pytest.mark.parametrize("fixed", [0.05, 0.3, 0.7, 1.0])
def test_greedy_batches_against_the_exact_chain(limit, fixed):
    """One instance, Poisson arrivals, up to utilisation 0.85: within 2 % of the numerical solution."""
    loads = np.array([0.05, 0.3, 0.6, 0.85])
    first = fixed + (1 - fixed) / limit
    formula = greedy_batch_ttft(loads * limit, 1, limit, first, 1.0, **POISSON)
    exact = [greedy_by_chain(load * limit, limit, first, 1.0)[1] for load in loads]
    assert formula == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize("limit", [1, 2, 4, 16, 48])
@pytest.mark.parametrize("fixed", [0.02, 0.2, 0.5, 1.0])
def test_the_closed_form_against_the_exact_chain(limit, fixed):
    """The planner's formula, with the errors that its docstring states."""
    loads = np.array([0.05, 0.3, 0.6, 0.85])
    first = fixed + (1 - fixed) / limit
    exact = [greedy_by_chain(load * limit, limit, first, 1.0)[1] for load in loads]
    bound = {1: 1e-6, 2: 0.08, 4: 0.08, 16: 0.02, 48: 0.02}[limit]
    assert batch_service_ttft(loads * limit, limit, first, 1.0) == pytest.approx(exact, rel=bound)


@given(limit=st.integers(1, 200), fixed=st.floats(0, 1), scale=st.floats(1e-3, 1e3))
def test_the_closed_form_grows_with_the_rate(limit, fixed, scale):
    loads = np.linspace(0, 1, 400, endpoint=False)
    first = fixed + (1 - fixed) / limit
    ttft = batch_service_ttft(loads * limit / scale, limit, first * scale, scale)
    assert np.all(np.isfinite(ttft))
    assert np.all(np.diff(ttft) >= -1e-9 * scale)
    assert ttft[0] == pytest.approx(first * scale)
    assert np.isinf(batch_service_ttft(1.001 * limit / scale, limit, first * scale, scale))


@pytest.mark.parametrize("instances", [1, 4, 20])
@pytest.mark.parametrize("limit", [1, 4, 64])
@pytest.mark.parametrize("fixed", [0.02, 0.5, 1.0])
def test_greedy_times_grow_with_load(instances, limit, fixed):
    loads = np.array([1e-3, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
    first = fixed + (1 - fixed) / limit
    queue = (loads * instances * limit, instances, limit, first, 1.0)
    mean = greedy_batch_ttft(*queue, **POISSON)
    p95, p99 = (greedy_batch_ttft_percentile(*queue, **POISSON, share=share) for share in (0.95, 0.99))
    assert np.all(np.diff(mean) > -1e-6)
    assert np.all(p99 >= p95 * (1 - 1e-9))
    assert np.all(mean >= first * (1 - 1e-6))
    assert np.all(greedy_batch_wait(*queue, **POISSON) >= -1e-9)
    assert mean[0] == pytest.approx(first, rel=0.1)


@pytest.mark.parametrize("scv", [1.0, 2.0, 5.0])
def test_burstier_arrivals_wait_longer(scv):
    rates = np.array([0.6, 0.9]) * 8
    queue = (rates, 1, 8, 0.4, 1.0)
    calm = greedy_batch_wait(*queue, arrival_scv=scv)
    assert np.all(greedy_batch_wait(*queue, arrival_scv=scv * 1.2) > calm)


def test_beyond_utilisation_1_nothing_is_finite_and_nothing_fails():
    rates = np.array([0.5, 0.999, 1.0, 1.5, 40.0]) * 16
    stable = np.array([True, True, False, False, False])
    queue = (rates, 2, 8, 0.4, 1.0)
    assert np.array_equal(np.isfinite(greedy_batch_wait(*queue, **POISSON)), stable)
    assert np.array_equal(np.isfinite(greedy_batch_ttft(*queue, **POISSON)), stable)
    p95 = greedy_batch_ttft_percentile(*queue, **POISSON, share=0.95)
    assert np.array_equal(np.isfinite(p95), stable)
    single = (rates, 1 / 8, 2)
    assert np.array_equal(np.isfinite(wait_mmc(*single)), stable)
    assert np.array_equal(np.isfinite(wait_mdc(*single)), stable)
    assert np.array_equal(np.isfinite(full_batch_wait(rates, 2, 8, 1.0, **POISSON)), stable)
    assert np.array_equal(np.isfinite(wait_kingman(rates / 16, 1.0, arrival_scv=1, service_scv=0)), stable)
    assert utilisation(rates, 1 / 8, 2) == pytest.approx(rates / 16)


def test_a_thousand_pools_take_less_than_two_seconds():
    rates = np.linspace(0.1, 0.9, 1000) * 32
    start = time.process_time()
    greedy_batch_ttft(rates, 1, 32, 0.3, 1.0, **POISSON)
    assert time.process_time() - start < 2
