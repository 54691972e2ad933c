"""Layers in stages: parts of a batch that follow each other through them."""

from __future__ import annotations

from cm384model.numeric import Numeric, law


@law
def pipeline_time(chunks: Numeric, stages: Numeric, *, chunk_time: Numeric, last_time: Numeric) -> Numeric:
    r"""Time of a batch that goes in chunks through the stages of a pipeline.

    The first stage takes all chunks one after the other; the last of them then has the other
    stages before it [1]_. What the stages idle meanwhile is the bubble: with equal chunks the
    share :math:`(p - 1) / (c + p - 1)` of the time.

    .. math::
        t = c\,\bar t + (p - 1)\,t_c

    Parameters
    ----------
    chunks : numeric
        Chunks of the batch, :math:`c`. [-]
    stages : numeric
        Stages of the pipeline, :math:`p`. [-]
    chunk_time : numeric
        Mean time of a chunk in a stage, its transfer to the next included, :math:`\bar t`. [s]
    last_time : numeric
        Time of the last chunk in a stage, :math:`t_c`. [s]

    Returns
    -------
    time : numeric
        Time from the first chunk's start to the last chunk's end. [s]

    Notes
    -----
    Valid for stages that take equal time for the same chunk, and chunks whose times do not fall:
    chunks of one prompt grow, because each attends to all before it, unless they are cut so that
    they take equal time [2]_.

    Examples
    --------
    >>> f"{pipeline_time(8, 2, chunk_time=0.1, last_time=0.15):.2f}"
    '0.95'

    References
    ----------
    .. [1] huang2019, Sec. 2.3.
    .. [2] vllmascend2026, dynamic chunk pipeline parallel.
    """
    return chunks * chunk_time + (stages - 1) * last_time
